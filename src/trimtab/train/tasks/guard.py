"""Keeps the process of verifiers: cuts it off from the network, and ends it with everything it began once the learner is gone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import NoReturn

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 36, 38
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
LOOK = 1000  # milliseconds between looks at whether the learner is still the parent
LINGER = 5.0  # seconds a killed process may take to go
_reaped: dict[int, int] = {}  # how children ended, where a system cannot look without reaping


def guarded(body: Callable[[], None], pipe: int, parent: int) -> NoReturn:
    """Run `body` in a child and end as it does, or once the pipe's other side closes; either way nothing it began is left."""
    adopt_orphans()
    mine, child = os.getpid(), os.fork()
    if child == 0:
        _be_the_child(body, mine)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))
    try:
        ended = _awaited(child, pipe, woken, parent)
    finally:
        status = end_descendants(child)
    _end_like(status if ended else 0)


def adopt_orphans() -> None:
    """Become the parent of what children leave behind, so that it can be ended."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def tie_to(parent: int) -> None:
    """End with the parent, even in the midst of a call."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before it could be tied to
        os._exit(0)


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


def end_descendants(leader: int, spared: Collection[int] = ()) -> int:
    """Kill a child's process group, then every child there is and those they leave behind. How the child had ended."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    status, mine, kept = _reaped.pop(leader, None), [leader], set(spared)
    if status is not None:
        mine = [pid for pid in children() if pid not in kept]
    while mine:
        for pid in mine:
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:  # it runs as somebody else by now
                kept.add(pid)
                continue
            found = os.waitpid(pid, 0)[1]
            status = found if pid == leader else status
        mine = [pid for pid in children() if pid not in kept]
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


def leave_network() -> str | None:
    """Go on without a network, and without programs that gain rights; why not, where the system does not let us."""
    if sys.platform != "linux":
        return f"{sys.platform} has no call for it"
    _prctl(PR_SET_NO_NEW_PRIVS, 1)
    error = _unshared(CLONE_NEWNET) and _unshared(CLONE_NEWUSER | CLONE_NEWNET)
    return os.strerror(error) if error else None


def leave_users() -> None:
    """Lose, where possible, the right to look into the user's other processes: the learner's environment and memory."""
    if sys.platform == "linux":
        _unshared(CLONE_NEWUSER)


def _be_the_child(body: Callable[[], None], parent: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        tie_to(parent)
        with contextlib.suppress(OSError):  # where memory runs out, end before the learner
            Path("/proc/self/oom_score_adj").write_text("1000")
        body()
    except OSError:  # the pipe is gone
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _awaited(child: int, pipe: int, woken: int, parent: int) -> bool:
    """Wait for the child's end (True) or the learner's (False); orphans that end meanwhile are reaped."""
    poll = select.poll()
    poll.register(pipe, 0)  # tells of a closed other side only
    poll.register(woken, select.POLLIN)
    while os.getppid() == parent:
        if exit_code(child) is not None:
            return True
        for orphan in children():
            if orphan != child:
                os.waitpid(orphan, os.WNOHANG)
        events = poll.poll(LOOK)
        if any(number == pipe for number, _ in events):
            return False
        if events:
            os.read(woken, 4096)
    return False


def _end_like(status: int) -> NoReturn:
    """End by the same signal or with the same code."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # SIGKILL has no handler to take away
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 1)


def children() -> list[int]:
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


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _unshared(flags: int) -> int:
    """Leave namespaces of the system, user and group staying who they are; 0, or the error's number."""
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None, use_errno=True).unshare(flags) != 0:
        return ctypes.get_errno()
    if flags & CLONE_NEWUSER:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with contextlib.suppress(OSError):
                Path("/proc/self", name).write_text(text)
    return 0
