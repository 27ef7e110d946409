"""A command with all the processes it starts, as one thing that can be ended, and that ends with this process in any case."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from trimtab.train.engines.vllm import guard

REAPED = 2.0
"""Seconds from the last connection of a process that ends to its end."""
GONE = 10.0
"""Seconds for the system to clear away processes that were killed."""


class ProcessSession:
    """A guard that leads a session of its own, and under it the command."""

    def __init__(self, command: Sequence[str], *, status: Path, log: Path, environment: Mapping[str, str]) -> None:
        """What it prints goes to `log`; how the command ended is left in the file `status`."""
        self._status = status
        status.unlink(missing_ok=True)
        with log.open("ab") as out:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(guard.__file__), str(status), *command],
                env=dict(environment),
                stdin=subprocess.PIPE,  # it ends with us, and the guard sees it
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def leader(self) -> int:
        """Process id of the guard, and number of the group of all."""
        return self._guard.pid

    @property
    def ended(self) -> str | None:
        """How it ended; None while it runs."""
        if self._guard.poll() is None:
            return None
        if not self._status.exists():
            return "was ended together with its guard"
        code = int(self._status.read_text())
        return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"

    def close(self, patience: float = 10.0) -> None:
        """End all of it: politely, then by force."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(patience)
        self._end()

    def kill(self) -> str:
        """End all of it at once; how it had ended by itself, if it had: its connections close a moment before it does."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._guard.wait(REAPED)
        ended = self.ended or "did not answer and was killed"
        self._end()
        return ended

    def _end(self) -> None:
        self._signal(signal.SIGKILL)
        self._guard.wait()
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        deadline = time.monotonic() + GONE
        while self._signal(0) and time.monotonic() < deadline:
            time.sleep(0.02)

    def _signal(self, number: int) -> bool:
        """Whether there was anybody to hear it."""
        try:
            os.killpg(self.leader, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True
