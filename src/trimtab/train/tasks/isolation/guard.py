"""Keeps the process of verifiers: cuts it off from the network, and ends it with everything it began once the learner is gone."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from trimtab.train.children.children import (
    adopt_orphans,
    child_pids,
    die_with,
    end_descendants,
    exit_code,
    set_process_option,
)

PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
LOOK = 1000  # milliseconds between looks at whether the learner is still the parent


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


def leave_network() -> str | None:
    """Go on without a network, and without programs that gain rights; why not, where the system does not let us."""
    if sys.platform != "linux":
        return f"{sys.platform} has no call for it"
    set_process_option(PR_SET_NO_NEW_PRIVS, 1)
    error = _unshared(CLONE_NEWNET) and _unshared(CLONE_NEWUSER | CLONE_NEWNET)
    return os.strerror(error) if error else None


def limit_memory(more: int) -> None:
    """Let this process, and each that it begins, have so many bytes of memory beyond what it has, and leave no core file."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        has = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        wanted = has + more if most == resource.RLIM_INFINITY else min(has + more, most)
        resource.setrlimit(resource.RLIMIT_AS, (wanted, wanted))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def leave_users() -> None:
    """Lose, where possible, the right to look into the user's other processes: the learner's environment and memory."""
    if sys.platform == "linux":
        _unshared(CLONE_NEWUSER)


def _be_the_child(body: Callable[[], None], parent: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        die_with(parent, code=0)
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
        for orphan in child_pids():
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
