"""`trimtab audit` and `trimtab parity` as users run them: a small model really sampled, each framework's file holds what it saved."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from tests.audit.sampled import make_model, sampled
from tests.cli.test_process import on_a_terminal
from tests.records.dumps import made, pickled
from tests.train.small_runs import SMALL
from trimtab.audit import scoring
from trimtab.cli.app import app
from trimtab.records.dumps import load, tail


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments], prog_name="trimtab")


def found_in(*arguments: object) -> tuple[list[str], dict[str, Any]]:
    """The causes found, and all that was said."""
    ran = run("audit", *arguments, "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    return [each["cause"] for each in told["causes"] if each["verdict"] == "found"], told


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return make_model(folder / "A"), make_model(folder / "B", seed=1)


@pytest.fixture(scope="module")
def sound(models: tuple[Path, Path]) -> made.Rollouts:
    return sampled(models[0])


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRIMTAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


FAULTS: list[tuple[str, Callable[..., Path], Callable[[Path], made.Rollouts], made.Change, str]] = [
    ("nemo-rl", made.nemo_rl, sampled, made.shifted, "shift"),
    ("slime", made.slime_train, lambda model: sampled(model, temperature=0.7), made.same, "temperature"),
    ("skyrl", pickled.skyrl, lambda model: sampled(model, top_p=0.9), made.same, "truncation"),
]


@pytest.mark.parametrize(("framework", "writer", "drawn", "change", "cause"), FAULTS, ids=[row[0] for row in FAULTS])
def test_the_fault_of_a_sampler_is_found_in_its_framework_s_file(
    framework: str,
    writer: Callable[..., Path],
    drawn: Callable[[Path], made.Rollouts],
    change: made.Change,
    cause: str,
    models: tuple[Path, Path],
    sound: made.Rollouts,
    tmp_path: Path,
):
    (tmp_path / "sound").mkdir()
    (tmp_path / "spoilt").mkdir()
    spoilt = writer(tmp_path / "spoilt", change, drawn(models[0]))
    found, told = found_in(spoilt)
    assert found == [cause]
    assert told["origin"]["framework"] == framework
    assert told["advice"]["title"].startswith("Fix first")
    assert found_in(writer(tmp_path / "sound", made.same, sound))[0] == []

    page = tmp_path / "audit.html"
    ran = run("audit", tmp_path / "spoilt", "--fail-on", "found", "--html", page)
    assert ran.exit_code == 1
    assert "Fix first" in ran.stdout
    assert page.read_text().endswith("</html>")
    assert run("audit", tmp_path / "sound", "--fail-on", "suspected").exit_code == 0


def test_a_file_of_one_side_is_judged_with_a_model_and_without_one_says_so(
    models: tuple[Path, Path], sound: made.Rollouts, tmp_path: Path
):
    file = made.open_instruct(tmp_path, made.same, sound)
    ran = run("audit", file)
    assert ran.exit_code == 2
    said = " ".join(ran.stderr.split())
    assert "got none of the trainer (proximal). What brings them: --model" in said
    found, told = found_in(file, "--model", models[0])
    assert found == []
    assert told["tokens"] == sum(map(len, sound.responses))
    assert told["rms"] < 1e-5  # the same weights, in float32
    assert told["scored_again"] is None
    other = found_in(file, "--model", models[1])[1]
    assert other["rms"] > 1  # other weights


def test_a_model_sees_the_temperature_that_both_sides_left_out(models: tuple[Path, Path], tmp_path: Path):
    drawn = sampled(models[0], temperature=0.7)
    raw = made.Rollouts(**{**vars(drawn), "behavior": drawn.proximal})  # drawn at 0.7, reported for 1
    file = made.open_instruct(tmp_path, made.same, raw)
    found, told = found_in(file, "--model", models[0])
    assert found == ["temperature"]
    assert told["rms"] < 1e-5


def test_two_models_are_two_scorings_held_against_each_other(
    models: tuple[Path, Path], sound: made.Rollouts, tmp_path: Path
):
    file = made.open_instruct(tmp_path, made.same, sound)
    again = found_in(file, "--model", models[0], "--model", models[1])[1]["scored_again"]
    ran = run("parity", file, models[1], "--json")  # behavior is A's own, so that both compare A with B
    assert again["k3"] == pytest.approx(json.loads(ran.stdout)["k3"], rel=1e-3)
    assert again["outside"] > 0.5
    assert found_in(file, "--model", models[0], "--model", models[0])[1]["scored_again"]["k3"] == 0
    shown = run("audit", file, "--model", models[0], "--model", models[1]).stdout
    assert "scored again" in shown


def test_scoring_that_was_interrupted_goes_on_where_it_stood(
    models: tuple[Path, Path], sound: made.Rollouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = made.open_instruct(tmp_path, made.same, sound)
    few = 8 * max(map(len, sound.tokens))  # tokens of a pass: some 8 of 48 sequences
    monkeypatch.setattr("trimtab.audit.scoring.ModelScorer.__init__.__kwdefaults__", {
        **scoring.ModelScorer.__init__.__kwdefaults__, "most_tokens": few
    })  # fmt: skip
    real, passes = scoring._score, []

    def interrupted(policy: Any, plain: bool, batch: Any, rows: list[int], temperatures: Any) -> Any:
        if len(passes) == 2:
            raise KeyboardInterrupt
        passes.append(rows)
        return real(policy, plain, batch, rows, temperatures)

    monkeypatch.setattr(scoring, "_score", interrupted)
    ran = run("audit", file, "--model", models[0])
    assert ran.exit_code == 130
    assert "run the same command again to continue" in " ".join(ran.stderr.split())
    before = [row for rows in passes for row in rows]
    passes.clear()

    def counted(policy: Any, plain: bool, batch: Any, rows: list[int], temperatures: Any) -> Any:
        if len(temperatures) == 1:
            passes.append(rows)
        return real(policy, plain, batch, rows, temperatures)

    monkeypatch.setattr(scoring, "_score", counted)
    assert found_in(file, "--model", models[0])[0] == []
    after = [row for rows in passes for row in rows]
    assert len(passes) > 2
    assert sorted(before + after) == list(sound.rows)  # none twice


def test_a_terminal_shows_a_bar_and_nothing_of_the_loader_s(
    models: tuple[Path, Path], sound: made.Rollouts, tmp_path: Path
):
    file = made.open_instruct(tmp_path, made.same, sound)
    printed = on_a_terminal("audit", str(file), "--model", str(models[0]), columns=100)
    assert "Scoring with A" in printed
    assert "Loading weights" not in printed
    assert "No correction needed" in printed
    plain = re.sub(r"\x1b\[[0-9;]*m", "", printed)
    rows = [line.split() for line in plain.splitlines()]
    assert ["off", *["100", "%"] * 6, "×", "1"] in rows  # on one line, with the columns that fit


def test_parity_is_a_gate_with_exit_codes(models: tuple[Path, Path], sound: made.Rollouts, tmp_path: Path):
    file = made.open_instruct(tmp_path, made.same, sound)
    passed = run("parity", file, models[0])
    assert (passed.exit_code, passed.stdout[:7]) == (0, "passed:")
    failed = run("parity", file, models[1])
    assert (failed.exit_code, failed.stdout[:7]) == (1, "FAILED:")
    other = made.nemo_rl(tmp_path, made.same, sound)  # another framework's file of the same tokens
    assert run("parity", file, other).exit_code == 0
    assert run("parity", file, made.nemo_rl(tmp_path, made.shifted, sound)).exit_code == 1
    assert run("parity", file, made.nemo_rl(tmp_path, made.same, sampled(models[0], seed=1))).exit_code == 2


def test_a_growing_folder_is_followed_until_it_is_interrupted(
    models: tuple[Path, Path], sound: made.Rollouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "logs"
    folder.mkdir()

    def grow() -> Iterator[None]:
        """What a run does between two looks: nothing, a step, one with a fault, half a line."""
        yield
        first = made.nemo_rl(tmp_path, made.same, sound)
        yield first.rename(folder / "train_data_step1.jsonl")
        second = made.nemo_rl(tmp_path, made.shifted, sound)
        yield second.rename(folder / "train_data_step2.jsonl")
        (folder / "train_data_step3.jsonl").write_text('{"content": [["<p>"')
        yield
        raise KeyboardInterrupt

    growing = grow()
    monkeypatch.setattr(tail, "time", SimpleNamespace(sleep=lambda _: next(growing)))
    ran = run("audit", folder, "--watch")
    assert ran.exit_code == 130
    lines = ran.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["step 1", "step 2"]
    assert "no cause found" in lines[0]
    assert "shift by a token" in lines[1]


def test_one_of_our_own_runs_is_audited_whole_and_as_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = SMALL | {"steps": 3, "evaluate": None}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    out = tmp_path / "run"
    ran = run("train", tmp_path / "run.yaml", "--out", out, "--no-report")
    assert ran.exit_code == 0, ran.output
    batch = load([out])
    assert batch.origin.framework == "trimtab"
    assert batch.step is not None
    assert set(np.unique(batch.step)) <= {0, 1, 2, 3}
    told = found_in(out)[1]
    assert told["tokens"] == batch.trained.sum() > 0
    assert {each["cause"] for each in told["causes"] if each["lacks"].startswith("version")} == set()

    looks = iter([None, None])
    monkeypatch.setattr(tail, "time", SimpleNamespace(sleep=lambda _: stop() if next(looks, 0) == 0 else None))

    def stop() -> None:
        raise KeyboardInterrupt

    watched = run("audit", out, "--watch")
    assert watched.exit_code == 130
    assert f"{len(batch):,} sequences" in watched.stdout


class _Touches:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_a_pickle_that_would_run_something_is_refused_by_name(tmp_path: Path):
    ran_at = tmp_path / "RAN"
    path = tmp_path / "dumped_data" / "global_step_7_training_input.pkl"
    path.parent.mkdir()
    path.write_bytes(pickle.dumps({"batch_dict": {"sequences": _Touches(ran_at)}}))
    for words in (["audit", path], ["parity", path, path], ["audit", path.parent, "--from", "skyrl"]):
        ran = run(*words)
        assert ran.exit_code == 2
        assert "system" in ran.stderr
        assert "Traceback" not in ran.stderr
        assert not ran_at.exists()
    pickle.loads(path.read_bytes())  # the control: it is a real one
    assert ran_at.exists()
