"""What the system says of processes, and the end of those that belong together."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection, Iterator
from pathlib import Path

LINGER = 5.0  # seconds a killed process may take to go
_reaped: dict[int, int] = {}  # how children ended, where a system cannot look without reaping


def exit_code(pid: int) -> int | None:
    """A child's exit code, or minus its signal; None while it runs. It is not reaped, so that its number stays its own."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        number, status = (pid, _reaped[pid]) if pid in _reaped else os.waitpid(pid, os.WNOHANG)
        if number:
            _reaped[pid] = status
        return os.waitstatus_to_exitcode(status) if number else None
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def ending_of(code: int | None) -> str:
    """How a process ended, to follow its name: by its exit code, or minus its signal."""
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"


def is_from_outside(code: int | None) -> bool:
    """Whether a process that ended with this code was ended by somebody else, or by the system for want of memory."""
    return code is not None and -code in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def end_descendants(leader: int, spared: Collection[int] = ()) -> int:
    """Kill a child's process group, then every child there is and those they leave behind. How the child had ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    status, mine, kept = _reaped.pop(leader, None), [leader], set(spared)
    if status is not None:
        mine = [pid for pid in child_pids() if pid not in kept]
    while mine:
        for pid in mine:
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:  # it runs as somebody else by now
                kept.add(pid)
                continue
            found = os.waitpid(pid, 0)[1]
            status = found if pid == leader else status
        mine = [pid for pid in child_pids() if pid not in kept]
    return status or 0


def end_session(session: int) -> None:
    """Kill what is left of a session. Its leader must not have been reaped: the number could be another's by now."""
    until = time.monotonic() + LINGER
    while time.monotonic() < until:
        left = [pid for pid, state, _, of in _processes() if of == session and pid != session and state != "Z"]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def child_pids() -> list[int]:
    """This process's children, also those it got when their parent ended; none where there is no /proc."""
    try:
        texts = [each.read_text() for each in Path("/proc/self/task").glob("*/children")]
    except OSError:
        texts = []
    if texts:
        return [int(pid) for text in texts for pid in text.split()]
    return [pid for pid, _, parent, _ in _processes() if parent == os.getpid()]


def _processes() -> Iterator[tuple[int, str, int, int]]:
    """Number, state, parent and session of every process; none where there is no /proc."""
    for each in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, parent, _, session = each.read_text(errors="replace").rpartition(")")[2].split()[:4]
            yield int(each.parent.name), state, int(parent), int(session)
