"""A server's processes end together, and with the run, whatever ends which of them; with programs in place of vLLM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.children.processes import children_of, group_is_gone
from tests.waiting import LIMIT, until
from trimtab.train.children.children import ProcessSession

# A program and its child, which hear nobody's end: each leaves a file once it runs.
STUBBORN = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); pathlib.Path({!r}).touch(); time.sleep(9999)"
PARENT = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', {!r}]); exec({!r})"
RUN = """
import os, pathlib, sys, time
from trimtab.train.children.children import ProcessSession
folder = pathlib.Path({folder!r})
made = ProcessSession({command!r}, status=folder / "status", log=folder / "log", environment=os.environ)
(folder / "leader.part").write_text(str(made.pid))
os.replace(folder / "leader.part", folder / "leader")
time.sleep(9999)
"""


def program(folder: Path) -> list[str]:
    own, childs = STUBBORN.format(str(folder / "own")), STUBBORN.format(str(folder / "childs"))
    return [sys.executable, "-c", PARENT.format(childs, own)]


def is_up(folder: Path) -> bool:
    return (folder / "own").exists() and (folder / "childs").exists()


@pytest.fixture
def session(tmp_path: Path) -> Iterator[ProcessSession]:
    made = ProcessSession(
        program(tmp_path), status=tmp_path / "status", log=tmp_path / "log", environment=dict(os.environ)
    )
    until(lambda: is_up(tmp_path))
    yield made
    made.kill()


def test_closing_ends_also_what_does_not_listen(session: ProcessSession) -> None:
    assert session.ended is None
    session.close(patience=0.5)
    until(lambda: group_is_gone(session.pid))


def test_a_server_that_is_killed_takes_its_children_along_and_the_cause_is_known(session: ProcessSession) -> None:
    (server,) = children_of(session.pid)
    os.kill(server, signal.SIGKILL)
    until(lambda: session.ended is not None)
    assert session.ended == "was ended by SIGKILL"
    until(lambda: group_is_gone(session.pid))


def test_an_exit_code_is_told(tmp_path: Path) -> None:
    made = ProcessSession(
        [sys.executable, "-c", "raise SystemExit(3)"],
        status=tmp_path / "status",
        log=tmp_path / "log",
        environment=dict(os.environ),
    )
    until(lambda: made.ended is not None)
    assert made.kill() == "ended with exit code 3"


def test_without_its_guard_a_server_is_ended_by_the_run(session: ProcessSession) -> None:
    os.kill(session.pid, signal.SIGKILL)
    assert session.kill() == "was ended together with its guard"
    until(lambda: group_is_gone(session.pid))


def test_one_that_hangs_is_said_to_have_been_killed(session: ProcessSession) -> None:
    assert session.kill() == "did not answer and was killed"
    until(lambda: group_is_gone(session.pid))


def test_a_run_that_is_killed_leaves_nothing_behind(tmp_path: Path) -> None:
    code = RUN.format(folder=str(tmp_path), command=program(tmp_path))
    run = subprocess.Popen([sys.executable, "-c", code])
    try:
        until(lambda: (tmp_path / "leader").exists())
        leader = int((tmp_path / "leader").read_text())
        # At any moment: also before the server has begun to listen to anything.
    finally:
        run.kill()
        run.wait(LIMIT)
    until(lambda: group_is_gone(leader))
