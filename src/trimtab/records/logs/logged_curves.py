"""A log: curves by name, with the settings where they are in it; and rows gathered to curves."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

LARGEST_LOG = 4_000_000_000
"""Of a file; logs of a year are smaller."""
LONGEST_LINE = 8_000_000
"""Bytes of one line or record; what is longer is passed over."""
NON_FINITE = {
    "nan": float("nan"),
    "infinity": float("inf"),
    "-infinity": float("-inf"),
    "inf": float("inf"),
    "-inf": float("-inf"),
}
"""Numbers as loggers write them that JSON does not know."""


class LoggedCurve(NamedTuple):
    """Values at steps, in the order in which they were written."""

    steps: array[int]
    values: array[float]


@dataclass(frozen=True, eq=False)
class Log:
    """One run as a logger wrote it."""

    path: Path
    kind: str
    """Who wrote it: W&B, JSON Lines, verl's console, …"""
    curves: Mapping[str, LoggedCurve]
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The trainer's own settings; empty where the log does not hold them."""
    notes: tuple[str, ...] = ()
    """What was passed over in reading."""
    name: str = ""
    """Of the run, where a file holds several."""

    @property
    def steps(self) -> int:
        """How many different steps have a value."""
        return len({step for curve in self.curves.values() for step in curve.steps})


def logged_number(value: object) -> float | None:
    """A logged value as a number; None for any other."""
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return NON_FINITE["infinity"] if value > 0 else NON_FINITE["-infinity"]
    return NON_FINITE.get(value.lower()) if isinstance(value, str) else None


class LoggedRows:
    """LoggedRows of values by step; those with the same names are gathered together, so that a long log costs little."""

    def __init__(self) -> None:
        self._by_names: dict[tuple[str, ...], tuple[list[int], list[tuple[object, ...]]]] = {}

    def add(self, step: int, row: Mapping[str, object]) -> None:
        """One row."""
        steps, rows = self._by_names.setdefault(tuple(row), ([], []))
        steps.append(step)
        rows.append(tuple(row.values()))

    def curves(self) -> dict[str, LoggedCurve]:
        """Every name that has a number."""
        found: dict[str, LoggedCurve] = {}
        for names, (steps, rows) in self._by_names.items():
            for name, column in zip(names, zip(*rows, strict=True), strict=True):
                _extend(found, name, steps, column)
        return {name: curve for name, curve in found.items() if curve.values}


def _extend(found: dict[str, LoggedCurve], name: str, steps: Sequence[int], column: Sequence[object]) -> None:
    curve = found.setdefault(name, LoggedCurve(array("q"), array("d")))
    try:
        values = array("d", column)  # pyright: ignore[reportArgumentType, reportCallIssue] (other types are the error below)
    except (TypeError, OverflowError):
        pairs = [
            (step, value)
            for step, each in zip(steps, column, strict=True)
            if (value := logged_number(each)) is not None
        ]
        curve.steps.extend(step for step, _ in pairs)
        curve.values.extend(value for _, value in pairs)
    else:
        curve.steps.extend(steps)
        curve.values.extend(values)


def flat(value: Mapping[str, object], before: str = "", depth: int = 0) -> Iterable[tuple[str, object]]:
    """Leaves of nested metrics, their names joined by slashes."""
    for key, inner in value.items():
        if isinstance(inner, Mapping) and depth < 4:
            yield from flat({str(name): each for name, each in inner.items()}, f"{before}{key}/", depth + 1)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        else:
            yield f"{before}{key}", inner
