"""Axes: from values to places on paper, and the ticks between."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.report.series import ENDLESS


@dataclass(frozen=True)
class Scale:
    """How the value axis of a chart is laid."""

    log: bool = False
    ends: tuple[float, float] | None = None
    """None: what the values need."""
    from_zero: bool = False
    """Whether it starts at 0, so that noise looks as small as it is."""


FREE, LOG, SHARE, FROM_ZERO = Scale(), Scale(log=True), Scale(ends=(0.0, 1.0)), Scale(from_zero=True)


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic scale from [low, high] to places [start, end]."""

    low: float | int
    high: float | int
    start: float | int
    end: float | int
    log: bool = False

    def place(self, value: NDArray[np.float64] | float | int) -> NDArray[np.float64]:
        """Where a value stands; beyond an end, at the end. On a log axis 0 stands at the lower end."""
        given = np.asarray(value, dtype=np.float64)
        low, high = self.low, self.high
        if self.log:
            given, low, high = np.log10(np.maximum(given, self.low)), math.log10(low), math.log10(high)
        with np.errstate(over="ignore"):  # what is beyond every number is beyond the end
            share = np.clip((given - low) / (high - low), 0.0, 1.0)
        return np.asarray(self.start + share * (self.end - self.start))

    @property
    def ticks(self) -> list[float]:
        """A handful of round values within the axis."""
        return _log_ticks(self.low, self.high) if self.log else round_ticks(self.low, self.high)


def round_ticks(low: float | int, high: float | int, about: int = 4) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, about so many."""
    # 0 to 0.9: raw 0.225, power 0.1, width 0.5 (0.1 and 0.2 are too narrow), ticks 0 and 0.5.
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    width = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / width - 1e-9)
    last = math.floor(high / width + 1e-9)
    return [round(place * width, 12) for place in range(first, last + 1)]


def _log_ticks(low: float | int, high: float | int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    decades = [10.0**power for power in range(first, last + 1)]
    if len(decades) >= 3:
        stride = -(-len(decades) // 5)
        return decades[::stride]
    around = [factor * 10.0**power for power in range(first - 1, last + 1) for factor in (1, 2, 5)]
    inside = [tick for tick in around if low * 0.999 <= tick <= high * 1.001]
    return inside if len(inside) > 1 else round_ticks(low, high)  # 2.1 to 2.9: none of 1, 2, 5


def axis_ends(values: Iterable[float], *, log: bool) -> tuple[float, float]:
    """Ends that leave a little air around the finite values (positive ones, on a log axis)."""
    finite = [value for value in values if abs(value) < ENDLESS and (value > 0 or not log)]
    if not finite:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(finite), max(finite)
    if log:
        # Nothing under a millionth of the largest is told apart: a stray 1e-12 would flatten the rest.
        low = max(low, high * 1e-6)
        air = max((high / low) ** 0.06, 1.15)
        return low / air, high * air
    air = 0.06 * (high - low) or 0.1 * abs(high) or 0.5
    return (low if low == 0 else low - air), high + air
