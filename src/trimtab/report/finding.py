"""A finding: one sentence with its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["alarm", "warning", "note", "good"]
LEVELS: tuple[Level, ...] = ("alarm", "warning", "note", "good")


@dataclass(frozen=True)
class Finding:
    """One sentence with its numbers, and the chart to look at."""

    level: Level
    title: str
    sentence: str
    panel: str | None = None
    step: int | None = None
    """Where it shows, if at one step."""
