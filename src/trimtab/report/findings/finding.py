"""A finding: one sentence with its numbers, and what it is answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FindingLevel = Literal["alarm", "warning", "note", "good"]
LEVELS: tuple[FindingLevel, ...] = ("alarm", "warning", "note", "good")
Remedy = Literal[
    "closer policies",
    "after a fall",
    "more signal",
    "wider bound",
    "narrower bound",
    "fewer skips",
    "longer responses",
    "bounded weight",
    "finer precision",
    "recomputed cache",
    "smaller steps",
]
"""What answers a finding; `advice.py` makes a setting of it that fits the run."""


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
    remedy: Remedy = "closer policies"
    """What an alarm or a warning is answered with, where `advice` does not say it; others are not answered."""
    advice: Advice | None = None
    """What to try; every alarm and every warning has one in the end."""
