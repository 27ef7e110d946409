"""A finding: one sentence with its numbers, and what to try."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingLevel = Literal["alarm", "warning", "note", "good"]
LEVELS: tuple[FindingLevel, ...] = ("alarm", "warning", "note", "good")


@dataclass(frozen=True)
class Advice:
    """One change, and where its effect shows."""

    setting: str
    """As typed after `trimtab train RUN/config.yaml`: rollout.max_staleness=1."""
    look: str
    """What to look at afterwards."""


@dataclass(frozen=True)
class RunFinding:
    """One sentence with its numbers, and the chart to look at."""

    level: FindingLevel
    title: str
    sentence: str
    panel: str | None = None
    step: int | None = None
    """Where it shows, if at one step."""
    advice: Advice | None = None
    """What to try; every alarm and every warning has one (`advice.py`)."""
