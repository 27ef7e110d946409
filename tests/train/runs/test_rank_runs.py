"""Whole runs whose learner has two ranks: what they leave, how they stop, what a killed rank does to them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.train.small_runs import lines, weights
from tests.train.started import MARK, Launcher, Started, check_records, kinds, surroundings, until

SHARDS = ("ddp", "fsdp")
FOLLOWER = "trimtab.train.learner.team"
TRIALS = int(os.environ.get("TRIMTAB_TRIALS", "20"))


def two(shard: str, **changes: Any) -> dict[str, Any]:
    return {"learner": {"ranks": 2, "shard": shard, "patience": 1_000_000}} | changes


def relative(one: Path, other: Path) -> float:
    a, b = weights(one), weights(other)
    return float((a - b).norm() / b.norm())


@pytest.mark.parametrize("shard", SHARDS)
def test_a_run_on_two_ranks_is_that_of_one_and_each_reads_the_others_checkpoints(
    shard: str, launcher: Launcher, tmp_path: Path
) -> None:
    alone, both = launcher.settings(), launcher.settings(two(shard))
    assert launcher.train(alone, "--out", "alone", "--no-report").code() == 0
    assert launcher.train(both, "--out", "both", "--no-report").code() == 0
    assert relative(tmp_path / "both", tmp_path / "alone") < 1e-5
    rewards = [[line["rollout/reward"] for line in lines(tmp_path / name)] for name in ("both", "alone")]
    assert rewards[0] == rewards[1]
    check_records(tmp_path / "both", 6)
    for name, file, ranks in (("from-two", both, "1"), ("from-one", alone, "2")):
        other = "none" if ranks == "1" else shard
        assert launcher.train(file, "steps=3", "--out", name, "--no-report").code() == 0
        moved = (f"learner.ranks={ranks}", f"learner.shard={other}", "steps=6")
        again = launcher.train("--resume", name, *moved, "--no-report")
        assert again.code() == 0, again.errors
        assert relative(tmp_path / name, tmp_path / "alone") < 1e-5
        check_records(tmp_path / name, 6)


@pytest.mark.parametrize("shard", SHARDS)
def test_a_run_on_ranks_goes_on_bit_for_bit_and_saves_what_one_process_saves(
    shard: str, launcher: Launcher, tmp_path: Path
) -> None:
    file = launcher.settings(two(shard))
    assert launcher.train(file, "--out", "whole", "--no-report").code() == 0
    assert launcher.train(file, "steps=3", "--out", "parts", "--no-report").code() == 0
    assert launcher.train("--resume", "parts", "steps=6", "--no-report").code() == 0
    assert torch.equal(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    both = [[_trained(line) for line in lines(tmp_path / name)] for name in ("parts", "whole")]
    assert repr(both[0]) == repr(both[1])  # as text: NaN is no number, and equal to none
    assert launcher.train(launcher.settings(), "--out", "alone", "--no-report").code() == 0
    saved = [
        {
            file.relative_to(tmp_path / name).as_posix(): file.stat().st_size
            for file in tmp_path.glob(f"{name}/checkpoints/*/model/*")
        }
        for name in ("whole", "alone")
    ]
    assert saved[0] == saved[1], "the same files, each of the same size"


def _trained(line: dict[str, float]) -> dict[str, float]:
    """Without the evaluation, which a run makes at its end too, wherever that is."""
    return {name: value for name, value in line.items() if not name.startswith("eval")}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_to_stop_the_ranks_end_their_step_and_the_run_can_go_on(
    number: signal.Signals, launcher: Launcher, tmp_path: Path
) -> None:
    file = launcher.settings(two("fsdp", steps=1000))
    run = launcher.train(file, "--out", "run", "--no-report")
    run.after(2)
    run.send(number)
    assert run.code() == 128 + number
    done = run.steps()
    check_records(tmp_path / "run", done)
    again = launcher.train("--resume", "run", f"steps={done + 2}", "--no-report")
    assert again.code() == 0
    check_records(tmp_path / "run", done + 2)


@pytest.mark.parametrize("shard", SHARDS)
def test_a_rank_that_is_killed_ends_the_run_with_a_sentence_and_it_can_be_resumed(
    shard: str, launcher: Launcher, tmp_path: Path
) -> None:
    run = launcher.train(launcher.settings(two(shard, steps=1000)), "--out", "run", "--no-report")
    run.after(4)
    os.kill(run.children(FOLLOWER)[0], signal.SIGKILL)
    assert run.code() == 2
    assert "The learner needs all of its 2 ranks, got no answer from one" in run.errors
    assert "--resume" in run.errors
    done = run.steps()
    again = launcher.train("--resume", "run", f"steps={done + 2}", "--no-report")
    assert again.code() == 0, again.errors
    assert "stopped" in kinds(check_records(tmp_path / "run", done + 2))


def test_ranks_die_with_a_run_that_is_killed(launcher: Launcher) -> None:
    run = launcher.train(launcher.settings(two("ddp", steps=1000)), "--out", "run", "--no-report")
    run.after(2)
    assert run.children(FOLLOWER)
    run.send(signal.SIGKILL)
    assert run.code() == -signal.SIGKILL  # waits until no child is left


def torchrun(launcher: Launcher, *words: str) -> Started:
    """A run of two processes as torchrun starts them."""
    mark, files = (
        f"{launcher.folder.name}-torchrun-{len(launcher.runs)}",
        launcher.folder / f"torchrun-{len(launcher.runs)}",
    )
    with files.with_suffix(".out").open("w") as output, files.with_suffix(".err").open("w") as errors:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node=2",
                "-m",
                "trimtab",
                "train",
                *words,
            ],
            cwd=launcher.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=surroundings(launcher.folder) | {MARK: mark, "GLOO_SOCKET_IFNAME": "lo"},
            start_new_session=True,
        )
    run = Started(process.pid, mark, files, process.poll, launcher.folder / "run")
    launcher.runs.append(run)
    return run


def test_torchrun_trains_stops_and_is_resumed_by_one_process(launcher: Launcher, tmp_path: Path) -> None:
    file = launcher.settings({"learner": {"shard": "fsdp"}, "steps": 1000})
    run = torchrun(launcher, file, "--out", "run", "--no-report")
    run.after(3)
    run.send(signal.SIGINT)
    run.code()
    done = run.steps()
    check_records(tmp_path / "run", done)
    assert kinds(check_records(tmp_path / "run", done))[-1] == "stopped"
    assert launcher.train("--resume", "run", f"steps={done + 2}", "learner.shard=none", "--no-report").code() == 0
    check_records(tmp_path / "run", done + 2)


def test_torchrun_without_a_way_to_share_is_refused(launcher: Launcher, tmp_path: Path) -> None:
    run = torchrun(launcher, launcher.settings(), "--out", "run", "--no-report")
    assert run.code() != 0
    assert "torchrun with 2 processes needs learner.shard ddp or fsdp, got none" in run.errors
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.slow
def test_ranks_killed_at_random_moments_lose_nothing_and_leave_nobody(launcher: Launcher, tmp_path: Path) -> None:
    """A rank, the first one included, is killed after a random share of a step; the run is resumed until it is done."""
    rng = random.Random(0)
    steps = 2 * TRIALS
    file = launcher.settings(two("fsdp", steps=steps, backend="local", checkpoint={"every": 1}))
    run = launcher.train(file, "--out", "run", "--no-report")
    killed = resumed = 0
    while killed < TRIALS:
        seen = run.steps()
        until(lambda: run.steps() > seen or run.ended() is not None, "a step", run)  # noqa: B023
        if run.ended() is not None:
            break
        moment = rng.random() * 0.3
        until(_Elapsed(moment), "the moment", run)
        victims = [run.pid] if rng.random() < 0.3 else run.children(FOLLOWER)
        if run.ended() is None and victims:
            os.kill(rng.choice(victims), signal.SIGKILL)
            killed += 1
        code = run.code()  # also waits until nothing it started is left
        assert code in (0, 2, -signal.SIGKILL), run.errors
        if code == 0:
            break
        resumed += 1
        run = launcher.train("--resume", "run", "--no-report")
    assert run.code() == 0, run.errors
    check_records(tmp_path / "run", steps)
    print(f"{killed} ranks killed, {resumed} times resumed, {steps} steps done; lost 0, left over 0")  # noqa: T201


class _Elapsed:
    """True once so many seconds have passed."""

    def __init__(self, seconds: float) -> None:
        import time

        self._clock, self._end = time.monotonic, time.monotonic() + seconds

    def __call__(self) -> bool:
        return self._clock() >= self._end
