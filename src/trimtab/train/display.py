"""What a run tells while it goes on, and the display that shows nothing of it."""

from __future__ import annotations

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
