"""What a run tells while it goes on, the display that shows nothing of it, and the guard around one that may fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class Display(Protocol):
    """What a user sees of a run."""

    def warm_start(self, step: int, accuracy: float | None) -> None:
        """The policy is being taught."""

    def begin(self, path: Path, step: int) -> None:
        """The run begins, or goes on, at this step."""

    def step(self, step: int, metrics: dict[str, float]) -> None:
        """A step is done; its metrics."""

    def note(self, message: str) -> None:
        """Something to be told."""


class Silent:
    """No display."""

    def warm_start(self, step: int, accuracy: float | None) -> None:
        """Nothing."""

    def begin(self, path: Path, step: int) -> None:
        """Nothing."""

    def step(self, step: int, metrics: dict[str, float]) -> None:
        """Nothing."""

    def note(self, message: str) -> None:
        """Nothing."""


class Guarded:
    """A display that is dropped when it fails, as where the reader of a pipe is gone or the disk of a log is full."""

    def __init__(self, display: Display, warn: Callable[[str], None] = lambda message: None) -> None:
        self._display = display
        self.warn = warn
        """Told once, why it was dropped."""

    def warm_start(self, step: int, accuracy: float | None) -> None:
        """The policy is being taught."""
        self._try(lambda display: display.warm_start(step, accuracy))

    def begin(self, path: Path, step: int) -> None:
        """The run begins, or goes on, at this step."""
        self._try(lambda display: display.begin(path, step))

    def step(self, step: int, metrics: dict[str, float]) -> None:
        """A step is done; its metrics."""
        self._try(lambda display: display.step(step, metrics))

    def note(self, message: str) -> None:
        """Something to be told."""
        self._try(lambda display: display.note(message))

    def _try(self, call: Callable[[Display], None]) -> None:
        try:
            call(self._display)
        except (Exception, SystemExit) as error:  # rich answers a broken pipe with an exit
            self._display = Silent()
            self.warn(f"The display failed and is dropped; the run goes on. {type(error).__name__}: {error}")
