"""A command that the run starts in a session of its own, and that can be ended with all that it began."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.train.children.process_table import LINGER, end_session, ending_of, exit_code

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
