"""Ctrl-C, SIGTERM and SIGHUP as a wish that the loop looks at; asked a second time, an interrupt at once; then the run ends in peace."""

from __future__ import annotations

import math
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

REASONS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
AGAIN = {int(signal.SIGINT): 0.25, int(signal.SIGTERM): 1.0}
"""Seconds after a request from which another is a second one: launchers pass Ctrl-C on to a process that the terminal has signalled
already, `timeout` and schedulers signal a process by its number and by its group, and all of them mean it once."""
if hasattr(signal, "SIGHUP"):  # Windows has none
    REASONS[signal.SIGHUP] = "hung up"
    AGAIN[int(signal.SIGHUP)] = math.inf  # a terminal that closes sends several


class StoppedAtOnceError(KeyboardInterrupt):
    """A request to stop at once; `number` is that of the signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Stop:
    """True once the user or the system asked to stop. Signals are as before when it is left."""

    def __init__(self, *, waits: bool = True) -> None:
        self.reason: str | None = None
        self.waits = waits
        """Whether a first request is a wish; while a run is put together nobody looks at wishes, and it interrupts at once."""
        self._is_ending = False
        self._last = -math.inf
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.reason is not None

    def asked(self) -> bool:
        """Whether it is true by now: what a part of the run that waits or samples is given to look at."""
        return bool(self)

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

    def end(self) -> None:
        """The run ends from here on, and says how: requests that still come would only keep it from that."""
        self._is_ending = True

    def _asked(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._is_ending or now - self._last < AGAIN[number]:
            return
        self._last = now
        if self.waits and self.reason is None:
            self.reason = REASONS[signal.Signals(number)]
        else:
            raise StoppedAtOnceError(number)
