"""What examples of a framework's settings are written in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Rows = dict[str, dict[str, Any]]
"""An option, as its users call it → settings that show it."""


@dataclass(frozen=True)
class Examples:
    """A framework's options, each once."""

    corrections: Rows = field(default_factory=dict[str, dict[str, Any]])
    objectives: Rows = field(default_factory=dict[str, dict[str, Any]])
    """Losses and estimators by the name the framework gives them."""
    refused: Rows = field(default_factory=dict[str, dict[str, Any]])
    """Settings that `read` refuses; the error says why and what to do."""
    passed: tuple[tuple[str, str], ...] = ()
    """Options that change none of our numbers, and what they are about."""


def each_name(key: str, names: Iterable[str]) -> Rows:
    """Each name of one key, by itself."""
    return {f"{key}: {name}": {key: name} for name in names}
