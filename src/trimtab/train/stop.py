"""Ctrl-C and SIGTERM as a wish that the loop looks at; a second Ctrl-C interrupts at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Stop:
    """True once the user or the system asked to stop. Signals are as before when it is left."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.reason is not None

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():  # others may not set handlers
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._asked)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if self.reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.reason = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}[signal.Signals(number)]
