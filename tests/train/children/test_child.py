"""A child ends with all that it began, is looked at without being reaped, and its end is told in words."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.train.children.processes import alive
from tests.waiting import LIMIT, until
from trimtab.train.children.children import Child, end_children, ending_of

# One that starts another in a group of its own, deaf to requests; that one leaves its number.
STRAY = "import os, signal, sys, time; signal.signal(15, signal.SIG_IGN); open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(9999)"
PARENT = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {!r}, sys.argv[1]], process_group=0); time.sleep(9999)"


def python(code: str, *words: str, **options: object) -> Child:
    return Child([sys.executable, "-c", code, *words], environment=os.environ, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "ended with exit code 0"), (3, "ended with exit code 3"), (-9, "was ended by SIGKILL"), (-1000, "was ended by signal 1000")],
)  # fmt: skip
def test_an_end_is_told_by_its_code_or_signal(code: int, words: str) -> None:
    assert ending_of(code) == words


def test_one_that_ended_keeps_its_number_until_it_is_ended_here() -> None:
    child = python("raise SystemExit(3)")
    assert child.wait(LIMIT)
    assert (child.code, child.ended) == (3, "ended with exit code 3")
    os.kill(child.pid, 0)  # not reaped: nobody else can have this number
    child.end()
    child.end()
    assert child.code == 3
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_ending_one_ends_what_it_began_in_groups_of_their_own(tmp_path: Path) -> None:
    child = python(PARENT.format(STRAY), str(tmp_path / "stray"))
    file = tmp_path / "stray"
    until(lambda: file.exists() and file.read_text().isdigit())
    stray = int(file.read_text())
    assert os.getpgid(stray) != os.getpgid(child.pid), "killing its group would not reach this one"
    assert not child.wait(0.0)
    end_children([child])
    assert child.ended == "was ended by SIGKILL"
    until(lambda: not alive(stray))


def test_what_it_prints_goes_to_its_log_and_a_signal_reaches_its_group(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = python("import sys, time; print('here', flush=True); time.sleep(9999)", log=log)
    until(lambda: log.exists() and log.read_text() == "here\n")
    assert child.signal(signal.SIGTERM)
    assert child.wait(LIMIT)
    assert child.ended == "was ended by SIGTERM"
    child.end()
    assert not child.signal(0)
