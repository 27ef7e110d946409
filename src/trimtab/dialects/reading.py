"""What a framework's settings mean in our terms, and what there is to say about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from trimtab.config.algebra import Correction

Level = Literal["note", "surprise", "defect"]


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing about a setting. `note`: good to know. `surprise`: rarely meant. `defect`: never meant."""

    key: str
    level: Level
    text: str

    def __str__(self) -> str:
        return f"{self.level}: {self.key}: {self.text}"


@dataclass(frozen=True)
class Reading:
    """Settings of a framework as ours; None where the settings do not speak of it."""

    framework: str
    correction: Correction | None = None
    findings: tuple[Finding, ...] = ()
    said: tuple[str, ...] = field(default=(), repr=False)
    """The keys that were read, under their full names."""

    @property
    def defects(self) -> tuple[Finding, ...]:
        """The findings of level defect."""
        return tuple(each for each in self.findings if each.level == "defect")


@dataclass(frozen=True)
class Writing:
    """Our values in a framework's keys, and what the reader of those keys should know."""

    framework: str
    settings: dict[str, Any]
    """Nested as in the framework's own files."""
    findings: tuple[Finding, ...] = ()
