"""A command with all the processes it starts, as one thing that can be ended, and that ends with this process in any case."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.train.children import session_guard
from trimtab.train.children.child import Child
from trimtab.train.children.process_table import ending_of, is_from_outside

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
