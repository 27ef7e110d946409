from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests.train.small_runs import StopAt, lines, same, small, weights
from trimtab.errors import InUseError, RunError
from trimtab.records.run import RunDirectory
from trimtab.train.evaluate import Evaluation, Evaluator
from trimtab.train.loop import train


def test_a_run_leaves_metrics_rollouts_checkpoints_and_its_settings(tmp_path: Path) -> None:
    config = small()
    result = train(config, tmp_path / "run")
    run = RunDirectory.read(tmp_path / "run")
    assert result.steps == 6
    assert result.stopped is None
    assert run.status == "done"
    assert [line["step"] for line in run.metrics()] == list(range(6))
    assert [line["step"] for line in run.metrics() if "eval/accuracy" in line] == [1, 3, 5]
    table = run.rollout_table().to_pydict()
    assert len(table["step"]) == 6 * 16
    assert sorted(set(table["group"])) == list(range(24))
    assert all(len(each) == len(other) for each, other in zip(table["tokens"], table["proximal"], strict=True))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "run/checkpoints/step-000006/model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run/checkpoints/step-000006/model")
    assert model.config.vocab_size == len(tokenizer)
    assert type(config).from_settings(run.settings) == config


def test_lockstep_staleness_is_exact(tmp_path: Path) -> None:
    # groups are begun η = 2 versions ahead of their turn; before version 2 there is nothing older than version 0
    train(small(), tmp_path / "run")
    ages = [line["staleness/oldest_max"] for line in RunDirectory.read(tmp_path / "run").metrics()]
    assert ages == [0, 1, 2, 2, 2, 2]


def test_the_same_run_twice_gives_the_same_bits(tmp_path: Path) -> None:
    train(small(), tmp_path / "one")
    train(small(), tmp_path / "other")
    assert same(tmp_path / "one", tmp_path / "other")


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    train(small(), tmp_path / "one")
    train(small(seed=1), tmp_path / "other")
    assert not torch.equal(weights(tmp_path / "one"), weights(tmp_path / "other"))


@pytest.mark.parametrize("at", [1, 3, 4])
def test_a_run_that_is_stopped_and_resumed_equals_one_that_was_not(tmp_path: Path, at: int) -> None:
    train(small(), tmp_path / "whole")
    first = train(small(), tmp_path / "halves", display=StopAt(at))
    assert (first.steps, first.stopped) == (at, "interrupted")
    second = train(small(), tmp_path / "halves", resume=True)
    assert second.steps == 6
    assert same(tmp_path / "whole", tmp_path / "halves")


def test_no_prompt_is_trained_twice(tmp_path: Path) -> None:
    train(small(), tmp_path / "run", display=StopAt(4))
    train(small(), tmp_path / "run", resume=True)
    table = RunDirectory.read(tmp_path / "run").rollout_table().to_pydict()
    seen = list(zip(table["group"], table["sample"], strict=True))
    assert len(seen) == len(set(seen)) == 6 * 16


def test_a_damaged_checkpoint_is_passed_over_loudly(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole", tmp_path / "run"
    train(small(), whole)
    train(small(), path)
    newest = max(path.glob("checkpoints/step-*"))
    next(newest.glob("model/*.safetensors")).write_bytes(b"nothing of use")
    train(small(), path, resume=True)
    assert same(whole, path)
    assert any(event["kind"] == "checkpoint" for event in RunDirectory.read(path).events())


def test_two_runs_in_one_directory_are_refused(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {})
    with pytest.raises(InUseError):
        train(small(), tmp_path / "run", resume=True)
    run.close()


def test_nothing_learned_for_long_stops_the_run_and_says_what_to_look_at(tmp_path: Path) -> None:
    config = small(
        steps=40,
        learner={"patience": 3},
        rollout={"precision": "int4"},
        correction={"preset": "geo-rs", "lower": 0.9999999, "upper": 1.0000001},
    )
    with pytest.raises(RunError, match="3 steps in a row brought no update: all rejected"):
        train(config, tmp_path / "run")
    run = RunDirectory.read(tmp_path / "run")
    assert run.status == "failed"
    assert run.events()[-1]["kind"] == "stopped"


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("precision", ["bf16", "int8", "int4"])
def test_quantised_rollouts_differ_from_the_learner(tmp_path: Path, precision: str) -> None:
    train(small(rollout={"precision": precision, "max_staleness": 0}), tmp_path / "run")
    gaps = [line["drift/abs_log_r"] for line in RunDirectory.read(tmp_path / "run").metrics()]
    assert min(gaps) > 1e-5


def test_on_policy_rollouts_agree_with_the_learner(tmp_path: Path) -> None:
    train(small(rollout={"max_staleness": 0}), tmp_path / "run")
    worst = [line["drift/abs_log_r_max"] for line in RunDirectory.read(tmp_path / "run").metrics()]
    assert max(worst) < 1e-4


def test_local_without_staleness_equals_lockstep_bit_for_bit(tmp_path: Path) -> None:
    train(small(rollout={"max_staleness": 0}), tmp_path / "lockstep")
    train(small(rollout={"max_staleness": 0}, backend="local"), tmp_path / "local")
    one, other = lines(tmp_path / "lockstep"), lines(tmp_path / "local")
    assert torch.equal(weights(tmp_path / "lockstep"), weights(tmp_path / "local"))
    assert repr(one) == repr(other)


def test_local_never_trains_older_than_allowed(tmp_path: Path) -> None:
    train(small(backend="local", steps=10), tmp_path / "run")
    found = RunDirectory.read(tmp_path / "run").metrics()
    assert max(line["staleness/oldest_max"] for line in found) <= 2
    assert all(line["staleness/coverage"] == 1.0 for line in found)
    table = RunDirectory.read(tmp_path / "run").rollout_table().to_pydict()
    assert np.all(np.asarray(table["staleness"]) <= 2)


@pytest.mark.parametrize(("version", "steps"), [(0, 6), (2, 6), (6, 6)])
def test_an_evaluation_that_a_stop_broke_off_is_made_up_for_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, steps: int
) -> None:
    train(small(), tmp_path / "whole")
    real = Evaluator.begin

    def asked(self: Evaluator, at: int) -> Evaluation:
        if at == version:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self, at)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "begin", asked)
        first = train(small(), tmp_path / "run")
        assert (first.steps, first.stopped) == (version, "terminated")
        assert len(lines(tmp_path / "run")) == max(version - 1, 0)
        if version:  # asked again while it is made up for
            assert train(small(), tmp_path / "run", resume=True).stopped == "terminated"
    assert train(small(), tmp_path / "run", resume=True).steps == steps
    assert same(tmp_path / "whole", tmp_path / "run")
    assert [event for event in RunDirectory.read(tmp_path / "run").events() if event["kind"] == "missing"] == []
    assert train(small(), tmp_path / "run", resume=True).steps == steps
    assert same(tmp_path / "whole", tmp_path / "run")


def test_resuming_a_finished_run_clears_what_a_kill_left(tmp_path: Path) -> None:
    train(small(), tmp_path / "run")
    (tmp_path / "run/checkpoints/.removing-step-000001/model").mkdir(parents=True)
    train(small(), tmp_path / "run", resume=True)
    assert not list((tmp_path / "run/checkpoints").glob(".*"))
