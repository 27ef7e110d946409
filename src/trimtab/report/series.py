"""A metric over the steps of a run: smoothing, onsets, thinning. Arrays in, arrays out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Steps = NDArray[np.int64]
Values = NDArray[np.float64]
ENDLESS = 1e100
"""From here on a number counts as infinite: sums and squares of it would be."""
LAST_STEP = 2**53
"""No run counts further."""


def float_or_infinity(value: float | int) -> float:
    """The number, or the infinity it is as good as."""
    if abs(value) >= ENDLESS:
        return math.inf if value > 0 else -math.inf
    return float(value)


@dataclass(frozen=True, eq=False)
class Series:
    """Values at increasing steps; a step without the metric is not there, a value may be NaN or infinite."""

    steps: Steps
    values: Values

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, float | int]]) -> Series:
        """Sorted by step; of two values at one step the later stands, as after a resume. Beyond all steps there is none."""
        latest = {step: float_or_infinity(value) for step, value in pairs if abs(step) <= LAST_STEP}
        steps = sorted(latest)
        return cls(np.array(steps, dtype=np.int64), np.array([latest[step] for step in steps], dtype=np.float64))

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def finite(self) -> Series:
        """Only the values that are numbers."""
        stays = np.isfinite(self.values)
        return Series(self.steps[stays], self.values[stays])

    @property
    def median(self) -> float:
        """The median of the finite values; NaN where there is none."""
        values = self.finite.values
        return float(np.median(values)) if len(values) else float("nan")

    def within(self, first: int, last: int) -> Series:
        """The part from step `first` to step `last`, both included."""
        stays = (self.steps >= first) & (self.steps <= last)
        return Series(self.steps[stays], self.values[stays])

    @property
    def lately(self) -> Series:
        """The finite values of the last fifth of the steps."""
        part = self.finite
        return (
            part.within(int(part.steps[-1] - (part.steps[-1] - part.steps[0]) // 5), LAST_STEP) if len(part) else part
        )

    def smooth(self, width: int = 3) -> Series:
        """Centred running median over `width` finite values, fewer at the ends: one wild step moves nothing."""
        part = self.finite
        if width <= 1 or not len(part):
            return part
        padded = np.pad(part.values, width // 2, constant_values=np.nan)
        windows = np.lib.stride_tricks.sliding_window_view(padded, width)
        return Series(part.steps, np.nanmedian(windows, axis=1))


@dataclass(frozen=True)
class Onset:
    """A change by a factor within a few steps."""

    step: int
    """Where the factor was reached."""
    since: int
    """Where it started from."""
    before: float
    after: float


def onsets(series: Series, *, factor: float, window: int, floor: float, way: Literal["rise", "fall"]) -> list[Onset]:
    """Each first step at which the smoothed series is `factor` times what it was at most `window` steps before (or that much less).

    A rise counts from `floor / factor` up and a fall from `floor` down, so that noise around 0 is not a change. After an onset the
    next one is looked for where the series has come halfway back.

    factor 10, floor 0.02: 0.0001 → 0.021 is a rise (0.021 ≥ 10 · max(0.0001, 0.002)), 0.0001 → 0.01 is not; after 0.003 → 0.05 the
    next is looked for once the series was at 0.0265 or under.
    """
    part = series.smooth(3)
    sign = 1.0 if way == "rise" else -1.0
    base = _least_before(part, sign, window)
    before = np.where(base >= 0, part.values[base], np.nan)
    risen = part.values >= factor * np.maximum(before, floor / factor)
    fallen = (before >= floor) & (part.values <= before / factor)
    changes: list[Onset] = []
    last = -1
    for index in np.flatnonzero((risen if way == "rise" else fallen) & (base >= 0)).tolist():
        if changes:
            halfway = (changes[-1].before + changes[-1].after) / 2
            if (sign * (part.values[last : index + 1] - halfway)).min() > 0:
                continue
        since = int(base[index])
        changes.append(
            Onset(int(part.steps[index]), int(part.steps[since]), float(before[index]), float(part.values[index]))
        )
        last = index
    return changes


def _least_before(part: Series, sign: float, window: int) -> NDArray[np.int64]:
    """For each value the index of the least (by sign) of those at most `window` steps before it; −1 where there is none."""
    best = np.full(len(part), -1, dtype=np.int64)
    for back in range(1, min(window, len(part) - 1) + 1):
        index = np.arange(back, len(part))
        near = part.steps[index] - part.steps[index - back] <= window
        better = (best[index] < 0) | (sign * part.values[index - back] < sign * part.values[best[index]])
        best[index] = np.where(near & better, index - back, best[index])
    return best


def thin_series(series: Series, buckets: int = 400, keep: Literal["both", "least", "greatest"] = "both") -> Series:
    """The least and the greatest value of each bucket (or one of them), so that no spike is lost; one without a number is a gap."""
    if len(series) <= 2 * buckets:
        return series
    chosen: list[int] = []
    for part in np.array_split(np.arange(len(series)), buckets):
        finite = part[np.isfinite(series.values[part])]
        if len(finite) == 0:
            chosen.append(int(part[0]))
            continue
        least, greatest = finite[np.argmin(series.values[finite])], finite[np.argmax(series.values[finite])]
        kept = {"both": {int(least), int(greatest)}, "least": {int(least)}, "greatest": {int(greatest)}}[keep]
        chosen.extend(sorted(kept))
    places = np.array(chosen)
    return Series(series.steps[places], series.values[places])
