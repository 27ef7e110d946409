"""Whole runs on a cluster that each of them starts: their bits, their end, and what is left of them."""

from __future__ import annotations

import os
import random
import signal
import sys
import time

import pytest
import torch

from tests.train.runs.clusters import RAY, actors, leftovers, surroundings
from tests.train.small_runs import lines, weights
from tests.train.started import ENDLESS, Launcher, check_records, done, said, until
from trimtab.records.run import RunDirectory

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def test_one_sampler_and_no_staleness_give_the_bits_of_lockstep(launcher: Launcher) -> None:
    """Evaluations and all; and with another seed other bits."""
    names = {"lockstep": ["backend=lockstep"], "ray": ["backend=ray"], "other": ["backend=lockstep", "seed=1"]}
    settings = launcher.settings({"rollout": {"max_staleness": 0}})
    for name, words in names.items():
        run = launcher.train(settings, *words, "--out", name, **surroundings(launcher))
        assert run.code() == 0, run.errors
    paths = {name: launcher.folder / name for name in names}
    assert torch.equal(weights(paths["ray"]), weights(paths["lockstep"]))
    assert repr(lines(paths["ray"])) == repr(lines(paths["lockstep"]))
    assert not torch.equal(weights(paths["other"]), weights(paths["lockstep"]))
    assert sum(line["train/updates"] for line in lines(paths["ray"])) > 2
    assert leftovers(launcher.folder) == []


def test_a_run_on_a_cluster_is_killed_interrupted_and_resumed_as_a_local_one_is(launcher: Launcher) -> None:
    path, around = launcher.folder / "run", surroundings(launcher)
    settings = launcher.settings(RAY | {"rollout": {"samplers": 2}})
    run = launcher.train(settings, ENDLESS, "--out", "run", **around)
    run.after(3)
    assert {os.getpriority(os.PRIO_PROCESS, each) for each in actors(run)} == {os.getpriority(os.PRIO_PROCESS, 0)}
    os.kill(actors(run)[0], signal.SIGKILL)
    until(lambda: len(said(run, "sampler")) == 1, "word of the dead actor")
    assert "is gone: its worker process has died" in said(run, "sampler")[0]
    run.after(run.steps() + 3)
    run.send(signal.SIGKILL)  # the learner: nothing of its cluster may outlive it
    assert run.code() == -signal.SIGKILL

    run = launcher.train("--resume", "run", **around)
    run.after(done(path) + 3)
    os.killpg(run.pid, signal.SIGTERM)  # as a scheduler does: to all that the run started, as far as it knows
    assert run.code() == 128 + signal.SIGTERM, run.errors
    assert "Terminated. Continue with: trimtab train --resume run" in run.output
    check_records(path, done(path))

    run = launcher.train("--resume", "run", **around)
    run.after(done(path) + 3)
    os.killpg(run.pid, signal.SIGINT)
    assert run.code() == 130, run.errors
    assert "Traceback" not in run.errors
    assert check_records(path, done(path)).status == "stopped"
    assert leftovers(launcher.folder) == []


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["rollout.engine=vllm-server", "rollout.servers=[http://one:8000]"],
            "vllm-server needs backend local, got ray",
        ),
        (["ray.address=ray://127.0.0.1:1"], "ray.address needs `auto` or HOST:PORT, got 'ray://127.0.0.1:1'"),
        (["ray.address=127.0.0.1:1"], "ray.address needs the address of a running cluster, got '127.0.0.1:1'"),
    ],
)
def test_what_cannot_be_run_on_a_cluster_is_said_in_one_sentence(
    launcher: Launcher, words: list[str], answer: str
) -> None:
    run = launcher.train(launcher.settings(RAY), *words, "--out", "run")
    assert run.code() == 2
    assert answer in run.errors
    assert "Traceback" not in run.errors


@pytest.mark.slow
@pytest.mark.timeout(1700)
def test_actors_and_learners_killed_at_random_moments_lose_nothing(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    path, around, dice, count = launcher.folder / "run", surroundings(launcher), random.Random(2), 12
    run = launcher.train(
        launcher.settings(RAY | {"rollout": {"samplers": 2}, "steps": 100000}), "--out", "run", **around
    )
    until((path / "run.json").exists, "the run directory", run)
    for number in range(count):
        if dice.random() < 0.7:  # else it may be killed while it starts
            run.after(run.steps() + 2)
        time.sleep(dice.uniform(0.0, 1.0))
        if number % 3 < 2 and actors(run):
            os.kill(dice.choice(actors(run)), signal.SIGKILL)
            continue
        run.send(signal.SIGKILL)
        assert run.code() == -signal.SIGKILL, run.errors
        run = launcher.train("--resume", "run", **around)
        until(lambda run=run: "going on at" in run.errors or "begins at step 0" in run.errors, "the resumed run", run)
    run.after(run.steps() + 2)
    run.send(signal.SIGTERM)
    assert run.code() == 143, run.errors
    check_records(path, done(path))
    assert "missing" not in [event["kind"] for event in RunDirectory.read(path).events()]
    assert leftovers(launcher.folder) == []
    with capsys.disabled():
        sys.stdout.write(f"\nkills of actors and learners: survived {count} of {count}, left-overs 0\n")
