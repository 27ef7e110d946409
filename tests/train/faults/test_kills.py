"""Processes killed, interrupted and terminated: what a run does, what it leaves, and how it goes on."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tests.train.faults.cuts import trials
from tests.train.small_runs import SMALL, lines, weights
from tests.train.started import ENDLESS, LIMIT, Launcher, Started, check_records, done, kinds, said, until
from trimtab.records.run import RunDirectory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def test_samplers_that_are_killed_are_replaced_and_ctrl_c_says_how_to_go_on(launcher: Launcher) -> None:
    changes = {"backend": "local", "rollout": {"samplers": 2}, "evaluate": None}
    run = launcher.train(launcher.settings(changes), ENDLESS, "--out", "run", fresh=True)
    path = launcher.folder / "run"
    run.after(3)
    os.kill(run.samplers[0], signal.SIGKILL)
    until(lambda: len(said(run, "sampler")) == 1, "word of the dead sampler")
    run.after(run.steps() + 3)
    until(lambda: len(run.samplers) == 2, "a second sampler")
    for pid in run.samplers:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(said(run, "sampler")) == 3, "word of both samplers")
    run.after(run.steps() + 3)
    assert all("was ended by SIGKILL" in note and "Restarted" in note for note in said(run, "sampler"))
    os.killpg(run.pid, signal.SIGINT)  # as Ctrl-C does: to all that belongs to the terminal
    assert run.code() == 130
    assert "Traceback" not in run.errors
    steps = done(path)
    assert f"{steps} of 100000" in run.output
    assert check_records(path, steps).status == "stopped"
    resume = run.output.split("Continue with: trimtab train ")[1].split()
    again = launcher.train(*resume, f"steps={steps + 3}")
    assert again.code() == 0, again.errors
    assert check_records(path, steps + 3).status == "done"


def test_a_run_whose_samplers_always_die_gives_up_and_can_be_resumed(launcher: Launcher) -> None:
    run = launcher.train(launcher.settings({"backend": "local", "evaluate": None}), "--out", "run")
    killed: set[int] = set()
    while run.ended() is None:
        for pid in set(run.samplers) - killed:
            os.kill(pid, signal.SIGSEGV)  # a death of its own, which SIGKILL before it is ready would not be
            killed.add(pid)
        time.sleep(0.01)
    assert run.code() == 2
    assert len(killed) == 4
    assert (
        "error: Sampling needs samplers that live to finish a group, got sampler 0 dead 4 times in a row" in run.errors
    )
    assert "trimtab train --resume run" in run.errors
    assert "Traceback" not in run.errors
    records = check_records(launcher.folder / "run", 0)
    assert records.status == "failed"
    assert kinds(records) == ["sampler", "sampler", "sampler", "stopped"]

    again = launcher.train("--resume", "run", ENDLESS)
    again.after(4)
    again.send(signal.SIGKILL)  # the learner; its samplers must not outlive it
    assert again.code() == -signal.SIGKILL
    assert RunDirectory.read(launcher.folder / "run").status == "interrupted"
    last = launcher.train("--resume", "run", f"steps={done(launcher.folder / 'run') + 2}")
    assert last.code() == 0, last.errors
    check_records(launcher.folder / "run", done(launcher.folder / "run"))


def test_a_run_killed_at_any_moment_and_resumed_equals_one_that_was_not(launcher: Launcher) -> None:
    settings = launcher.settings({"steps": 60, "checkpoint": {"every": 10}, "evaluate": {"every": 10}})
    whole = launcher.train(settings, "--out", "whole")
    path = launcher.folder / "run"
    run = launcher.train(settings, "--out", "run")
    run.after(3)  # before the first checkpoint
    run.send(signal.SIGKILL)
    assert run.code() == -signal.SIGKILL

    run = launcher.train("--resume", "run")
    run.after(14)
    run.send(signal.SIGKILL)
    assert run.code() == -signal.SIGKILL
    assert "There is no whole checkpoint: the run begins at step 0." in run.errors

    unfinished = 0
    for step, part in ((20, ""), (30, "optimizer.safetensors"), (40, "manifest.json")):
        run = launcher.train("--resume", "run")
        saved = f"step-{step:06d}"
        _as_soon_as(run, path / f"checkpoints/.saving-{saved}" / part, path / "checkpoints" / saved)
        run.send(signal.SIGKILL)
        assert run.code() == -signal.SIGKILL
        unfinished += len(list(path.glob("checkpoints/.saving-*")))
    assert unfinished, "no kill came while a checkpoint was being saved"

    last = launcher.train("--resume", "run")
    assert last.code() == 0, last.errors
    assert whole.code() == 0
    assert check_records(path, 60).status == "done"
    assert repr(lines(path)) == repr(lines(launcher.folder / "whole"))
    assert weights(path).equal(weights(launcher.folder / "whole"))
    assert sum(line["train/updates"] for line in lines(path)) > 10
    assert not list(path.glob("checkpoints/.*"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("backend", "kills"), [("lockstep", 25), ("local", 8)])
def test_a_run_killed_again_and_again_at_random_moments_comes_to_its_end(
    launcher: Launcher, backend: str, kills: int
) -> None:
    kills = min(kills, trials())
    settings = launcher.settings({"steps": 100000, "backend": backend, "evaluate": None, "checkpoint": {"every": 2}})
    path, dice = launcher.folder / "run", random.Random(0)
    run = launcher.train(settings, "--out", "run")
    until((path / "run.json").exists, "the run directory", run)
    for _ in range(kills):
        time.sleep(dice.uniform(0.0, 1.5))
        if dice.random() < 0.8:  # else it may be killed while it starts
            run.after(run.steps() + 2)
        run.send(signal.SIGKILL)
        assert run.code() == -signal.SIGKILL, run.errors
        saved = done(path) if list(path.glob("checkpoints/step-*")) else 0
        run = launcher.train("--resume", "run")
        until(lambda run=run: "going on at" in run.errors or "begins at step 0" in run.errors, "the resumed run", run)
        assert f"going on at step {saved}" in run.errors or not saved
    run.after(run.steps() + 2)
    run.send(signal.SIGTERM)
    assert run.code() == 143, run.errors
    check_records(path, done(path))


VICTIMS = ("learner", "sampler", "samplers", "group")


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_whoever_is_killed_beside_a_learner_nothing_is_lost_or_left(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    scratch, dice = launcher.folder / "temporary", random.Random(1)
    scratch.mkdir()
    path, pids = launcher.folder / "run", set[int]()
    changes = {"steps": 100000, "backend": "local", "evaluate": None, "checkpoint": {"every": 2}}
    settings = launcher.settings(changes | {"rollout": {"samplers": 2}})
    run = launcher.train(settings, "--out", "run", TMPDIR=str(scratch))
    struck: Counter[str] = Counter()
    count = min(24, trials())
    for number in range(count):
        until((path / "run.json").exists, "the run directory", run)
        if dice.random() < 0.7:  # else it may be killed while it starts
            run.after(run.steps() + 2)
        time.sleep(dice.uniform(0.0, 0.3))
        victim = VICTIMS[number % len(VICTIMS)]
        samplers = run.samplers
        pids |= {run.pid, *samplers}
        struck[victim] += 1
        if victim in ("sampler", "samplers"):
            for pid in samplers[: 1 if victim == "sampler" else None]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            continue
        os.kill(run.pid, signal.SIGKILL) if victim == "learner" else os.killpg(run.pid, signal.SIGKILL)
        assert run.code() == -signal.SIGKILL, run.errors  # with all that it started
        run = launcher.train("--resume", "run", TMPDIR=str(scratch))
        until(lambda run=run: "going on at" in run.errors or "begins at step 0" in run.errors, "the resumed run", run)
    run.after(run.steps() + 2)
    run.send(signal.SIGTERM)
    assert run.code() == 143, run.errors
    records = check_records(path, done(path))
    assert "missing" not in kinds(records)
    shared = [each.name for each in Path("/dev/shm").iterdir() if any(f"-{pid}-" in each.name for pid in pids)]
    left = [*scratch.iterdir(), *path.rglob(".*"), *shared]
    assert left == []
    with capsys.disabled():
        told = ", ".join(f"{name} {number}" for name, number in struck.items())
        sys.stdout.write(f"\nkills beside a learner ({told}): survived {count} of {count}, left-overs 0\n")


def _as_soon_as(run: Started, file: Path, saved: Path) -> None:
    """Wait, without a pause, for a file that is there for milliseconds, or for what it becomes should it be missed."""
    deadline = time.monotonic() + LIMIT
    while not (file.exists() or saved.exists()):
        assert time.monotonic() < deadline
        assert run.ended() is None, run.errors


def test_sigterm_saves_and_says_how_to_go_on(launcher: Launcher) -> None:
    run = launcher.train(launcher.settings({"evaluate": None}), ENDLESS, "--out", "a run")
    run.after(4)
    run.send(signal.SIGTERM)
    assert run.code() == 128 + signal.SIGTERM
    assert "Terminated. Continue with: trimtab train --resume 'a run'" in run.output
    steps = done(launcher.folder / "a run")
    assert check_records(launcher.folder / "a run", steps).events()[-1]["message"] == "terminated"
    again = launcher.train("--resume", "a run", f"steps={steps + 2}")
    assert again.code() == 0, again.errors
    check_records(launcher.folder / "a run", steps + 2)


def test_a_second_ctrl_c_ends_a_run_that_waits(launcher: Launcher) -> None:
    (launcher.folder / "mine.py").write_text(
        "import time\n\n\ndef reward(response):\n    open('called', 'w').close()\n    time.sleep(1000)\n"
    )
    rewards = {"rewards": [{"function": "mine:reward"}], "timeout": 500}
    run = launcher.train(launcher.settings({"task": rewards, "evaluate": None}), "--out", "run")
    until((launcher.folder / "called").exists, "the reward function")
    run.send(signal.SIGINT)
    time.sleep(0.5)
    assert run.ended() is None, run.errors
    run.send(signal.SIGINT)
    assert run.code() == 130
    assert "Interrupted without saving. Continue with: trimtab train --resume run" in run.errors
    assert "Traceback" not in run.errors
    assert check_records(launcher.folder / "run", 0).status == "stopped"


def test_ctrl_c_held_down_is_one_wish_and_the_run_is_saved(launcher: Launcher) -> None:
    run = launcher.train(launcher.settings({"evaluate": None}), ENDLESS, "--out", "run", fresh=True)
    run.after(5)
    for _ in range(5):
        run.send(signal.SIGINT)
        time.sleep(0.01)
    assert run.code() == 130, run.errors
    assert "Traceback" not in run.errors
    assert check_records(launcher.folder / "run", done(launcher.folder / "run")).status == "stopped"


def test_a_run_that_ends_is_not_kept_from_saying_how(launcher: Launcher) -> None:
    """Ctrl-C again and again, until it is over."""
    (launcher.folder / "mine.py").write_text(HANGING)
    task = {"rewards": [{"function": "mine:reward"}], "timeout": 500}
    run = launcher.train(launcher.settings({"task": task, "evaluate": None}), "--out", "run", fresh=True)
    until(lambda: calls(launcher) >= 1, "the reward function", run)
    while run.ended() is None:
        with suppress(ProcessLookupError):
            run.send(signal.SIGINT)
        time.sleep(0.02)
    assert run.code() == 130, run.errors
    assert "Traceback" not in run.errors
    assert "Interrupted without saving. Continue with: trimtab train --resume run" in run.errors
    assert check_records(launcher.folder / "run", 0).status == "stopped"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_while_it_is_put_together_leaves_the_name_free(
    launcher: Launcher, number: signal.Signals
) -> None:
    slow = {"model": SMALL["model"] | {"warm_start": {"target": 1.0, "max_steps": 100_000}}}
    run = launcher.train(launcher.settings(slow), "--out", "run", fresh=True)
    until(lambda: "warm start" in run.errors, "the warm start", run)
    run.send(number)
    assert run.code() == 128 + number, run.errors
    assert "Traceback" not in run.errors
    assert not (launcher.folder / "run/run.json").exists()


HANGING = """
import time


def reward(response):
    with open("calls", "a") as calls:
        calls.write(".")
    time.sleep(1000)
"""


def calls(launcher: Launcher) -> int:
    file = launcher.folder / "calls"
    return file.stat().st_size if file.exists() else 0


@pytest.mark.parametrize("evaluate", [None, {"problems": 64}])
def test_sigterm_does_not_wait_for_every_verification(launcher: Launcher, evaluate: dict[str, int] | None) -> None:
    (launcher.folder / "mine.py").write_text(HANGING)
    task = {"rewards": [{"function": "mine:reward"}], "timeout": 1, "options": {"size": 3}}
    run = launcher.train(launcher.settings({"task": task, "evaluate": evaluate}), "--out", "run")
    until(lambda: calls(launcher) >= 2, "the reward function", run)
    run.send(signal.SIGTERM)
    before = calls(launcher)
    assert run.code() == 128 + signal.SIGTERM, run.errors
    assert calls(launcher) <= before + 2
    assert check_records(launcher.folder / "run", 0).status == "stopped"


def test_a_second_sigterm_ends_a_run_that_waits(launcher: Launcher) -> None:
    (launcher.folder / "mine.py").write_text(HANGING)
    task = {"rewards": [{"function": "mine:reward"}], "timeout": 500}
    run = launcher.train(launcher.settings({"task": task, "evaluate": None}), "--out", "run")
    until(lambda: calls(launcher) >= 1, "the reward function", run)
    run.send(signal.SIGTERM)
    time.sleep(1.5)
    assert run.ended() is None, run.errors
    run.send(signal.SIGTERM)
    assert run.code() == 128 + signal.SIGTERM
    assert "Interrupted without saving. Continue with: trimtab train --resume run" in run.errors
    assert check_records(launcher.folder / "run", 0).status == "stopped"
