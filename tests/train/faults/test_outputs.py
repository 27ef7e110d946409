"""Outputs that are closed, full or without a reader, and terminals that go away: a run does not depend on who listens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.train.small_runs import lines, small
from tests.train.started import LIMIT, Launcher, check_records, surroundings
from trimtab.records.run import RunDirectory
from trimtab.train.display import Silent
from trimtab.train.loop import train

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


class Breaks(Silent):
    """A display that fails at a step."""

    def __init__(self, error: BaseException) -> None:
        self.error, self.calls = error, 0

    def step(self, step: int, metrics: dict[str, float]) -> None:
        if step >= 2:
            self.calls += 1
            raise self.error


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), OSError(28, "full"), ValueError(), SystemExit(1)]
)
def test_a_display_that_fails_is_dropped_and_the_run_goes_on(tmp_path: Path, error: BaseException) -> None:
    display = Breaks(error)
    assert train(small(), tmp_path / "run", display=display).steps == 6
    run = RunDirectory.read(tmp_path / "run")
    assert display.calls == 1
    assert run.status == "done"
    assert [event["kind"] for event in run.events()].count("display") == 1


def test_a_display_that_is_interrupted_interrupts_the_run(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(small(), tmp_path / "run", display=Breaks(KeyboardInterrupt()))


@pytest.mark.parametrize("streams", ["broken", "closed", "/dev/full"])
def test_a_run_whose_output_nobody_takes_trains_saves_and_ends_well(launcher: Launcher, streams: str) -> None:
    run = launcher.train(launcher.settings(), "--out", "run", streams=streams)
    assert run.code() == 0
    assert check_records(launcher.folder / "run", 6).status == "done"
    assert list((launcher.folder / "run").glob("checkpoints/step-000006"))
    assert (launcher.folder / "run/report.html").exists()


def test_a_run_started_with_closed_streams_mixes_nothing_into_its_files(launcher: Launcher) -> None:
    words = [sys.executable, "-m", "trimtab.cli", "train", launcher.settings({"backend": "local"}), "--out", "run"]
    closing = ["sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', *words]
    code = subprocess.run(closing, cwd=launcher.folder, env=surroundings(launcher.folder), timeout=LIMIT, check=False)
    assert code.returncode == 0
    run = check_records(launcher.folder / "run", 6)
    assert run.status == "done"
    assert (run.path / "lock").read_text().strip().isdigit()


def test_a_closed_terminal_saves_and_ends(launcher: Launcher) -> None:
    settings = launcher.settings({"evaluate": None, "backend": "local"})
    run = launcher.train(settings, "steps=100000", "--out", "run")
    run.after(4)
    for _ in range(3):  # the kernel and the shell each send it, to all of the session
        os.killpg(run.pid, signal.SIGHUP)
    assert run.code() == 128 + signal.SIGHUP, run.errors
    steps = len(lines(launcher.folder / "run"))
    assert steps >= 4
    assert check_records(launcher.folder / "run", steps).events()[-1]["message"] == "hung up"
    assert "Hung up. Continue with: trimtab train --resume run" in run.output
