"""Ctrl-C, SIGTERM and SIGHUP as a wish that the loop looks at; asked a second time, an interrupt at once."""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

REASONS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
if hasattr(signal, "SIGHUP"):  # Windows has none
    REASONS[signal.SIGHUP] = "hung up"
AGAIN = 1.0
"""Seconds after the first request from which another SIGTERM is a second one: `timeout` and schedulers signal a process by its
number and by its group, and mean it once."""


class StoppedAtOnceError(KeyboardInterrupt):
    """A second request to stop; `number` is that of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Stop:
    """True once the user or the system asked to stop. Signals are as before when it is left."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.reason is not None

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # others may not set handlers
            for number in REASONS:
                if number in (signal.SIGINT, signal.SIGTERM) or signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                    self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.reason is None:
            self.reason, self._since = REASONS[signal.Signals(number)], now
        elif number == signal.SIGINT or (number == signal.SIGTERM and now - self._since >= AGAIN):
            raise StoppedAtOnceError(number)  # not for SIGHUP: a terminal that closes sends several
