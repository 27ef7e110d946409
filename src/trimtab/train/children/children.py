"""Processes that a run starts and that end with it: what each does first, what the system says of them, and their parent's side."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from trimtab.train.children import session_guard

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def die_with(parent: int, number: signal.Signals = signal.SIGKILL, *, code: int = 1) -> None:
    """Get this signal when the parent ends, however that ends; end with `code` if it has already."""
    set_process_option(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:  # it died before the line above
        os._exit(code)


def ignore_signals(*numbers: signal.Signals) -> None:
    """Leave them to the parent, which decides what is still done."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def print_to(handle: int) -> None:
    """Have this process print there, whichever language it prints in, and say there where it crashed."""
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    faulthandler.enable(file=2)


def adopt_orphans() -> None:
    """Become the parent of what children leave behind, so that it can be ended."""
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)


def set_process_option(option: int, value: int) -> None:
    """prctl(2), where the system has it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


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


POLL = 0.002


class Child:
    """One such process. A Ctrl-C in the terminal does not reach it: what it does then is the run's to say.

    Looking at it never reaps it, so that its number, and that of its group, stay its own until it is ended here.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path | None = None,
        errors: int | None = None,
        inherits: Sequence[int] = (),
        is_tied: bool = False,
    ) -> None:
        """What it prints goes to `log`; without one its errors go to the file `errors`, or where ours do, and the rest nowhere.

        `inherits`: open files that it gets. `is_tied`: its standard input is a pipe that nobody writes to, and that ends with us.
        """
        with contextlib.ExitStack() as stack:
            output = subprocess.DEVNULL if log is None else stack.enter_context(log.open("ab"))
            self._process = subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=subprocess.PIPE if is_tied else subprocess.DEVNULL,
                stdout=output,
                stderr=errors if log is None else output,
                pass_fds=list(inherits),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its number, and that of its group and session."""
        return self._process.pid

    @property
    def code(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            return exit_code(self.pid)
        except ChildProcessError:  # somebody else reaped it
            return self._process.poll()

    @property
    def ended(self) -> str | None:
        """How it ended, to follow its name; None while it runs."""
        return None if (code := self.code) is None else ending_of(code)

    def wait(self, seconds: float) -> bool:
        """Whether it ends within that time."""
        until = time.monotonic() + seconds
        while self.code is None and time.monotonic() < until:
            time.sleep(POLL)
        return self.code is not None

    def signal(self, number: int) -> bool:
        """To its whole group; whether there was anybody to hear it."""
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def end(self, patience: float = 0.0) -> None:
        """Wait for its end so long, then kill it, and in any case all that is left of its session. Can be called again."""
        self.wait(patience)
        if self._process.returncode is None:
            self.signal(signal.SIGKILL)
            self.wait(LINGER)
            end_session(self.pid)
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        until = time.monotonic() + LINGER
        while self.signal(0) and time.monotonic() < until:
            time.sleep(POLL)


def end_children(children: Sequence[Child], patience: float = 0.0) -> None:
    """Wait for all of them together so long, then end each."""
    until = time.monotonic() + patience
    for child in children:
        child.end(max(0.0, until - time.monotonic()))


REAPED = 2.0
"""Seconds from the last connection of a process that ends to its end."""


class ProcessSession(Child):
    """A guard that leads a session of its own, and under it the command."""

    def __init__(self, command: Sequence[str], *, status: Path, log: Path, environment: Mapping[str, str]) -> None:
        """What it prints goes to `log`; how the command ended is left in the file `status`."""
        self._status = status
        self.is_from_outside = False
        """Known after `kill`: whether somebody else had ended it."""
        status.unlink(missing_ok=True)
        guarded = [sys.executable, "-I", "-S", str(session_guard.__file__), str(status), *command]
        super().__init__(guarded, environment=environment, log=log, is_tied=True)

    @property
    def ended(self) -> str | None:
        """How the command ended; None while it runs."""
        if self.code is None:
            return None
        if not self._status.exists():
            return "was ended together with its guard"
        return ending_of(int(self._status.read_text()))

    def close(self, patience: float = 10.0) -> None:
        """End all of it: politely, then by force."""
        self.signal(signal.SIGTERM)
        self.end(patience)

    def kill(self) -> str:
        """End all of it at once; how it had ended by itself, if it had: its connections close a moment before it does."""
        self.wait(REAPED)
        ended = self.ended or "did not answer and was killed"
        status = int(self._status.read_text()) if self._status.exists() else self.code
        self.is_from_outside = self.code is not None and is_from_outside(status)
        self.end()
        return ended
