"""What a run takes from outside its directory: rows with columns no file can hold, and a world that changes before a resume."""

from __future__ import annotations

import datetime
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.train.small_runs import Notes, StopAt, same, saved_model, small
from trimtab.config.training import Train
from trimtab.records.run import RunDirectory
from trimtab.train.loop import train
from trimtab.train.provenance import module_file


def own(folder: Path, rows: str, **changes: Any) -> Train:
    """A run on a file and a model of its own."""
    saved_model(folder / "model", "model.norm.weight", 1.0)
    task = {"name": "file", "path": str(folder / rows), "prompt": "q", "answer": "a", "options": {}}
    return small(
        model={"path": str(folder / "model")},
        task=task | {"rewards": [{"verifier": "numeric"}]},
        rollout={"max_tokens": 6},
        **({"evaluate": {"every": 2, "problems": 4}, "checkpoint": {"every": 1}} | changes),
    )


def plain(number: int, **more: Any) -> dict[str, Any]:
    return {"q": f"{number % 7}+1=", "a": str(number % 7 + 1), **more}


def written(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def check_resumes(config: Train, folder: Path) -> RunDirectory:
    """A run that is stopped and resumed equals one that was not."""
    train(config, folder / "whole")
    assert train(config, folder / "run", display=StopAt(3)).steps == 3
    train(config, folder / "run", resume=True)
    assert same(folder / "whole", folder / "run")
    return RunDirectory.read(folder / "run")


def test_columns_that_json_cannot_hold_stand_in_the_way_of_no_checkpoint(tmp_path: Path) -> None:
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5)
    odd = {
        "date": moment.date(),
        "time": moment,
        "price": decimal.Decimal("1.50"),
        "raw": b"\xff\x00",
        "nested": [{"at": moment, "of": [b"\xfe"]}],
    }
    table = pa.Table.from_pylist([plain(number, **odd) for number in range(30)])
    pq.write_table(table, tmp_path / "rows.parquet")
    check_resumes(own(tmp_path, "rows.parquet"), tmp_path)


def test_a_reward_gets_the_same_fields_after_a_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "typed.py").write_text(
        "import datetime\n\n\ndef reward(response, when):\n"
        "    assert isinstance(when, datetime.datetime), type(when)\n    return len(response) % 2\n"
    )
    monkeypatch.chdir(tmp_path)
    rows = [plain(number, when=datetime.datetime(2026, 1, 2)) for number in range(30)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    base = own(tmp_path, "rows.parquet")
    config = base.but(task=base.task.but(rewards=({"function": "typed:reward"},)))
    run = check_resumes(config, tmp_path)
    assert [line["rollout/failed"] for line in run.metrics()] == [0.0] * 6


def test_lone_surrogates_and_deep_fields_train_like_any_other_row(tmp_path: Path) -> None:
    deep = "[" * 800 + "]" * 800
    lines = [json.dumps(plain(number)) for number in range(30)]
    lines = [line[:-1] + f', "unused": {deep}}}' for line in lines]
    lines[3] = '{"q": "a\\ud800", "a": "1\\udc00"}'
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    run = check_resumes(own(tmp_path, "rows.jsonl", steps=8, evaluate=None), tmp_path)
    assert "a\ufffd" in run.rollout_table().to_pydict()["prompt"]


# a world that changed


def resumed_notes(config: Train, path: Path, steps: int) -> list[str]:
    notes = Notes()
    train(config.but(steps=steps), path, resume=True, display=notes)
    changed = [event["message"] for event in RunDirectory.read(path).events() if event["kind"] == "changed"]
    assert changed[len(changed) - len(notes.said) :] == notes.said
    return notes.said


def test_a_resumed_run_says_what_changed_outside_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def reward(response):\n    return len(response) % 2\n")
    written(tmp_path / "rows.jsonl", [plain(number) for number in range(30)])
    base = own(tmp_path, "rows.jsonl", kl={"estimator": "k3", "coefficient": 0.01}, evaluate=None)
    config = base.but(steps=2, task=base.task.but(rewards=({"function": "mine:reward"},)))
    path = tmp_path / "run"
    train(config, path)
    assert resumed_notes(config, path, 3) == []

    written(tmp_path / "rows.jsonl", [plain(number + 1) for number in range(30)])
    (rows,) = resumed_notes(config, path, 4)
    assert f"rows of {tmp_path / 'rows.jsonl'}" in rows
    assert resumed_notes(config, path, 5) == []  # said, and known from then on

    (tmp_path / "mine.py").write_text("def reward(response):\n    return 1.0\n")
    saved_model(tmp_path / "model", "model.norm.weight", 2.0)
    code, weights = resumed_notes(config, path, 6)
    assert "code of reward mine:reward" in code
    assert "weights" in weights
    assert "KL is measured from the new ones" in weights

    facts = json.loads((path / "run.json").read_text())
    facts["world"]["version of torch"] = "1.0"
    (path / "run.json").write_text(json.dumps(facts))
    (version,) = resumed_notes(config, path, 7)
    assert "version of torch: 1.0 before, " in version


def test_a_run_of_before_digests_were_kept_says_nothing(tmp_path: Path) -> None:
    written(tmp_path / "rows.jsonl", [plain(number) for number in range(30)])
    config = own(tmp_path, "rows.jsonl", steps=2, evaluate=None)
    train(config, tmp_path / "run")
    facts = json.loads((tmp_path / "run/run.json").read_text())
    del facts["world"]
    (tmp_path / "run/run.json").write_text(json.dumps(facts))
    written(tmp_path / "rows.jsonl", [plain(number + 1) for number in range(30)])
    assert resumed_notes(config, tmp_path / "run", 3) == []


def test_a_module_is_found_without_running_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package/inner").mkdir(parents=True)
    for name in ("package/__init__.py", "package/inner/__init__.py", "package/inner/deep.py"):
        (tmp_path / name).write_text("raise AssertionError('was run')\n")
    assert module_file("package.inner.deep") == tmp_path / "package/inner/deep.py"
    assert module_file("package.inner") == tmp_path / "package/inner/__init__.py"
    assert module_file("package.absent") is None
    assert module_file("absent.module") is None


# records that are missing


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_what_is_missing_of_the_steps_before_a_checkpoint_is_said(tmp_path: Path, share: float) -> None:
    path, config = tmp_path / "run", small(steps=4, checkpoint={"every": 2}, record={"every": 1, "rollouts": share})
    train(config, path)
    kept = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (path / "metrics.jsonl").write_bytes(kept[0] + kept[3])
    (path / "rollouts/step-000002.parquet").unlink()
    notes = Notes()
    train(config.but(steps=6), path, resume=True, display=notes)
    rows = "Rollouts are missing of step 2." if share == 1 else "Rollouts are missing: 24 of 32 are there."
    assert notes.said == [
        "metrics.jsonl has no line of steps 1 to 2. The run goes on without them.",
        f"{rows} The run goes on without them.",
    ]
    run = RunDirectory.read(path)
    assert [event["message"] for event in run.events() if event["kind"] == "missing"] == notes.said
    assert [line["step"] for line in run.metrics()] == [0, 3, 4, 5]


def test_a_run_without_metrics_says_so_and_one_with_all_of_them_nothing(tmp_path: Path) -> None:
    path, config = tmp_path / "run", small(steps=4, checkpoint={"every": 2})
    train(config, path)
    notes = Notes()
    train(config.but(steps=5), path, resume=True, display=notes)
    assert notes.said == []
    (path / "metrics.jsonl").unlink()
    train(config.but(steps=6), path, resume=True, display=notes)
    assert notes.said == ["metrics.jsonl has no line of steps 0 to 4. The run goes on without them."]
