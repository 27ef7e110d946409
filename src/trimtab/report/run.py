"""What a report is made from: the settings, metrics, events and rollouts of one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import pyarrow as pa

from trimtab.report.series import Series

EMPTY = Series.of(())
FIRST_STEP = 1
"""Records count steps from 0; people count them from 1, and so does all that a report shows."""


@dataclass(frozen=True, eq=False)
class Run:
    """One training run, read."""

    settings: Mapping[str, Any]
    """The resolved `Train` configuration."""
    metrics: Sequence[Mapping[str, Any]]
    """One mapping per step: `step` from 0, `time` in seconds, and numbers by metric name. Any may be missing."""
    events: Sequence[Mapping[str, Any]] = ()
    """`kind`, `message`, `step` (how many were done) and `time` of what happened beside the steps."""
    rollouts: pa.Table | None = None
    """One row per response; `step` from 0."""
    name: str = "run"
    status: str | None = None
    """running, done, failed, interrupted; None where it is not known."""
    piece: Callable[[int], str] | None = None
    """The text of a token id, where the run keeps its tokenizer."""

    @cached_property
    def _series(self) -> Mapping[str, Series]:
        pairs: dict[str, list[tuple[int, float | int]]] = {}
        for line in self.metrics:
            step = line.get("step")
            if not isinstance(step, int):
                continue
            for name, value in line.items():
                if isinstance(value, (int, float)) and name != "step":
                    pairs.setdefault(name, []).append((step + FIRST_STEP, value))
        return {name: Series.of(found) for name, found in pairs.items()}

    def series(self, name: str) -> Series:
        """A metric over the steps, counted from 1; empty where the run does not have it."""
        return self._series.get(name, EMPTY)

    @property
    def names(self) -> list[str]:
        """The metrics the run has."""
        return sorted(self._series)

    @cached_property
    def span(self) -> tuple[int, int]:
        """First and last step with any metric; (0, 0) without one."""
        steps = [series.steps for series in self._series.values() if len(series)]
        return (min(int(s[0]) for s in steps), max(int(s[-1]) for s in steps)) if steps else (0, 0)

    @property
    def count(self) -> int:
        """How many steps have metrics."""
        return len({str(line.get("step")) for line in self.metrics})

    def setting(self, path: str, default: Any = None) -> Any:
        """A setting by dotted path, `default` where it is absent or null."""
        place: object = self.settings
        for part in path.split("."):
            place = cast("Mapping[str, object]", place).get(part) if isinstance(place, Mapping) else None
        return default if place is None else place
