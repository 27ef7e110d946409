"""Verifiers as actors: the scores of those beside the learner, wherever they run and whichever of them dies."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
import torch

from tests.train.runs.clusters import RAY, leftovers, surroundings
from tests.train.small_runs import lines, weights
from tests.train.started import ENDLESS, Launcher, check_records, done
from trimtab.config.training import Train
from trimtab.errors import ConfigError

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

# Rewards that a process of its own gives, one call in a folder that only the run knows.
MINE = """
def digits(response, answer):
    return sum(each.isdigit() for each in response) / 8 + (answer in response)
"""


def settings(launcher: Launcher, **changes: Any) -> str:
    (launcher.folder / "mine_scored.py").write_text(MINE)
    task = {"options": {"size": 1}, "rewards": [{"function": "mine_scored:digits"}]}
    return launcher.settings({"task": task} | changes)


def test_two_actors_give_the_bits_of_lockstep_with_a_verifier_beside_the_learner(launcher: Launcher) -> None:
    names = {"lockstep": ["backend=lockstep"], "ray": ["backend=ray", "ray.verifiers=2"]}
    file = settings(launcher, rollout={"max_staleness": 0})
    for name, words in names.items():
        run = launcher.train(file, *words, "--out", name, **surroundings(launcher))
        assert run.code() == 0, run.errors
    paths = {name: launcher.folder / name for name in names}
    assert torch.equal(weights(paths["ray"]), weights(paths["lockstep"]))
    assert repr(lines(paths["ray"])) == repr(lines(paths["lockstep"]))
    rewards = {line["rollout/reward"] for line in lines(paths["ray"])}
    assert len(rewards) > 1, "rewards that never differ would hide a wrong one"
    assert leftovers(launcher.folder) == []


def test_an_actor_that_is_killed_costs_no_score_and_none_outlives_the_run(launcher: Launcher) -> None:
    path = launcher.folder / "run"
    run = launcher.train(
        settings(launcher, **RAY), "ray.verifiers=2", ENDLESS, "--out", "run", **surroundings(launcher)
    )
    for _ in range(2):
        run.after(run.steps() + 2)
        os.kill(run.children("ray::JudgeActor")[0], signal.SIGKILL)
    run.after(run.steps() + 4)
    assert len(run.children("ray::JudgeActor")) >= 1
    run.send(signal.SIGTERM)
    assert run.code() == 128 + signal.SIGTERM, run.errors
    found = check_records(path, done(path))
    assert {line["rollout/failed"] for line in found.metrics()} == {0.0}
    assert "Traceback" not in run.errors
    assert leftovers(launcher.folder) == []


def test_a_verifier_that_cannot_be_loaded_is_refused_before_anything_starts(launcher: Launcher) -> None:
    task = {"options": {"size": 1}, "rewards": [{"function": "no_such_module:score"}]}
    run = launcher.train(launcher.settings(RAY | {"task": task}), "ray.verifiers=1", "--out", "run")
    assert run.code() == 2
    assert "Reward needs a module that can be imported, got 'no_such_module:score'" in run.errors


def test_verifiers_on_a_cluster_need_one() -> None:
    with pytest.raises(ConfigError, match=r"ray\.verifiers needs backend ray, got local"):
        Train.from_settings({"ray": {"verifiers": 1}})
