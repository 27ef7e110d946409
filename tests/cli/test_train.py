from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from trimtab.cli import show
from trimtab.cli.app import app
from trimtab.cli.progress import Progress
from trimtab.config.advantages import Grpo
from trimtab.config.files import plain_settings
from trimtab.config.losses import Clip
from trimtab.config.training import Train
from trimtab.errors import ConfigError

METRICS = {
    "eval/accuracy": 0.5,
    "rollout/reward": 0.25,
    "staleness/oldest_mean": 3.5,
    "kept_fraction": 0.875,
    "drift/k3": 0.0123,
    "train/grad_norm": 1.5,
    "throughput/samples": 512.0,
}


def ran(*arguments: str) -> str:
    found = CliRunner().invoke(app, ["train", *arguments])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_a_dry_run_prints_settings_that_describe_the_same_run(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(ran("--dry-run", "rollout.max_staleness=8", "correction=off", "loss.kind=gspo", "learner.lr=1e-5"))
    found = Train.from_settings(plain_settings(file))
    wanted = {"rollout": {"max_staleness": 8}, "correction": "off", "loss": {"kind": "gspo"}, "learner": {"lr": 1e-5}}
    assert found == Train.from_settings(wanted)


@pytest.mark.parametrize("engine", ["vllm", "vllm-server"])
def test_a_dry_run_refuses_a_task_with_turns_and_an_engine_without(engine: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"question": "a", "answer": "b"}\n{"question": "c", "answer": "d", "replies": ["e"]}\n')
    own = f"task: {{name: file, path: {file}}}\nmodel: {{path: own, warm_start: null}}\nrollout: {{max_tokens: 8}}\n"
    (tmp_path / "run.yaml").write_text(own)
    for task in (["task.name=ledger"], [str(tmp_path / "run.yaml")]):
        found = CliRunner().invoke(app, ["train", "--dry-run", *task, f"rollout.engine={engine}", "backend=local"])
        assert found.exit_code == 2
        said = f"A task whose environment replies needs rollout.engine hf, got {engine}. Set it, or take a task of one turn."
        assert said in " ".join(found.stderr.split())
        assert not found.stdout


def test_a_dry_run_fetches_nothing_to_look_for_turns() -> None:
    where = ["task.name=file", "task.path=no-one/has-this", "model.path=own", "model.warm_start=null"]
    assert "no-one/has-this" in ran("--dry-run", *where, "rollout.max_tokens=8", "rollout.engine=vllm", "backend=local")


MINE = """
from somewhere import imported
import operator as other

def reward(response): ...

class Callable: ...

if True:
    chosen = imported

globals()["made"] = reward
"""

NOT_THERE = {
    "a task": (["task.name=chian"], "Task has no name 'chian'. Did you mean 'chain'"),
    "a task of reasoning-gym without a name": (["task.name=gym"], "Task has no name 'gym'."),
    "a file": (
        ["task.name=file", "task.path=no.jsonl", *(OWN := ["model.path=own", "model.warm_start=null"])],
        "Task needs an existing file, got 'no.jsonl'.",
    ),
    "a held-out file": (["task.name=file", "task.path=rows.jsonl", "task.held_out=no.csv", *OWN], "got 'no.csv'"),
    "no file at all": (["task.name=file", *OWN], "Task needs path with name file, got nothing."),
    "a file of another kind": (["task.name=file", "task.path=mine.py", *OWN], "needs a file ending in .jsonl"),
    "a field": (["task.name=file", "task.path=rows.jsonl", *OWN], "rows.jsonl:1 needs the field 'answer'"),
    "a module": (["task.rewards=[{function: nowhere:reward}]"], "there is no module 'nowhere'"),
    "a module of a package": (
        ["task.rewards=[{function: package.inner:reward}]"],
        "there is no module 'package.inner'",
    ),
    "a function": (
        ["task.rewards=[{function: mine:reword}]"],
        "Module mine has no function 'reword'. Did you mean 'reward'",
    ),
    "an option": (["task.options.syze=3"], "syze"),
}


@pytest.mark.parametrize("case", NOT_THERE)
def test_a_dry_run_refuses_what_is_not_there(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").write_text("")
    (tmp_path / "rows.jsonl").write_text('{"question": "a"}\n')
    words, message = NOT_THERE[case]
    found = CliRunner().invoke(app, ["train", "--dry-run", *words])
    assert found.exit_code == 2
    assert message in " ".join(found.stderr.split())
    assert not found.stdout


@pytest.mark.parametrize(
    "function",
    [
        "mine:reward", "mine:Callable", "mine:imported", "mine:other", "mine:chosen", "mine:made", "package.inner:anything",
        "open_ended:anything", "lazy:anything", "operator:eq", "math:sqrt", "itertools:count", "json.decoder:JSONDecoder", "os.path:join",
        "broken:anything", "maker.late:anything",
    ],
)  # fmt: skip
def test_a_dry_run_runs_no_function_and_accuses_none_that_may_be_there(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE + "raise AssertionError('was run')\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package/inner.py").write_text("from os import *\n")
    (tmp_path / "open_ended.py").write_text("from mine import *\n")
    (tmp_path / "lazy.py").write_text("def __getattr__(name): ...\n")
    (tmp_path / "broken.py").write_text("def (\n")
    (tmp_path / "maker.py").write_text("import sys\nsys.modules['maker.late'] = sys\n")
    ran("--dry-run", f"task.rewards=[{{function: {function}}}]")


@pytest.mark.parametrize(("task", "code"), [("chian", "2"), ("chain", "0"), ("ledger", "0")])
def test_a_dry_run_loads_no_torch_whether_it_refuses_the_task_or_not(task: str, code: str, tmp_path: Path) -> None:
    script = (
        "import sys\nfrom trimtab.cli import main\n"
        f"try:\n    main(['train', '--dry-run', 'task.name={task}'])\n"
        "except SystemExit as ended:\n    print(ended.code or 0, 'torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.split()[-2:] == [code, "False"]


def test_a_setting_of_the_loss_or_the_advantage_alone_changes_the_default_one() -> None:
    found = Train.from_settings({"loss": {"low": 0.1}, "advantage": {"baseline": "all"}})
    assert found.loss == Clip(low=0.1)
    assert found.advantage == Grpo(baseline="all")
    with pytest.raises(ConfigError, match="'baselin'"):
        Train.from_settings({"advantage": {"baselin": "all"}})


def test_every_setting_of_a_dry_run_carries_its_meaning() -> None:
    lines = ran("--dry-run").splitlines()
    for place, line in enumerate(lines):
        if line.strip().endswith(("max_staleness: 2", "clip_norm: 1.0", "slots: 128")):
            assert lines[place - 1].strip().startswith("# ")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("rollout.max_stalenes=8", "Did you mean 'max_staleness'?"),
        ("correction=geo", "There is no preset 'geo'"),
        ("learner.lr=-1", "greater than 0"),
        ("steps", "cannot be read"),
        ("backend=spark", "backend to be 'local', 'lockstep' or 'ray'"),
    ],
)
def test_a_setting_that_cannot_be_is_one_message_before_anything_starts(change: str, message: str) -> None:
    found = CliRunner().invoke(app, ["train", change])
    assert found.exit_code == 2
    assert message in found.stderr
    assert found.stderr.count("error:") == 1


def test_without_a_terminal_a_line_stands_for_each_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Console(width=200, record=True, highlight=False, force_terminal=False)
    monkeypatch.setattr(show, "console", lambda stderr=False: page)
    with Progress(2) as display:
        display.warm_start(25, 0.125)
        display.begin(Path("runs/chain-0001"), 0)
        display.step(1, {name: value for name, value in METRICS.items() if name != "eval/accuracy"})
        display.step(2, METRICS)
        display.note("gate 0 does nothing")
    lines = page.export_text().splitlines()
    assert lines[0].split() == ["warm", "start", "step", "25", "accuracy", "0.125"]
    assert lines[1] == "run runs/chain-0001"
    wanted = "accuracy 0.500 reward 0.250 staleness 3.5 kept 87.5% mismatch KL 1.23e-02 grad norm 1.50 samples/s 512"
    assert " ".join(lines[2].split()) == f"step 2/2 {wanted}"
    assert lines[3] == "note: gate 0 does nothing"


def test_on_a_terminal_the_numbers_and_the_time_left_are_live(monkeypatch: pytest.MonkeyPatch) -> None:
    page = Console(width=120, record=True, highlight=False, force_terminal=True)
    monkeypatch.setattr(show, "console", lambda stderr=False: page)
    with Progress(4) as display:
        display.begin(Path("run"), 0)
        display.step(1, METRICS)
    shown = page.export_text()
    for word in ("training", "1/4", "left", "mismatch KL", "1.23e-02", "87.5%"):
        assert word in shown
