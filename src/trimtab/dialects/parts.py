"""The few pieces from which every dialect builds a correction."""

from __future__ import annotations

from typing import Any

from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.reading import NOTHING

OFF = NOTHING

UNITS: dict[str, dict[str, Any]] = {
    "token": {"level": "token"},
    "segment": {"level": "segment", "agg": "mean"},
    "geometric": {"level": "sequence", "agg": "mean"},
    "sequence": {"level": "sequence", "agg": "sum"},
    "max": {"level": "sequence", "agg": "max"},
    "every": {"level": "sequence", "agg": "every"},
}
"""What a ratio is gathered over: the names under which frameworks know the levels."""

Gates = tuple[Gate, ...]


def limit(bound: float | None, unit: str) -> Limit | None:
    """A safety bound where frameworks put it: on the token at token level, on what was gathered elsewhere."""
    if bound is None:
        return None
    return Limit(bound=bound, at="token" if unit in ("token", "max", "every") else "gathered")


def ratio_gate(unit: str, lower: float | None, upper: float | None, **more: Any) -> Gates:
    """A gate on the ratio of a unit; none where both sides are open."""
    low = lower if lower is not None and lower > 0 else None
    if low is None and upper is None:
        return ()
    return (Gate(metric="ratio", **UNITS[unit], lower=low, upper=upper, **more),)


def weight_of(
    unit: str, lower: float | None = None, upper: float | None = None, *, zero: bool = False, **more: Any
) -> Weight:
    """A weight of a unit, held or zeroed outside its bounds; a lower bound of 0 is none."""
    low = lower if lower is not None and lower > 0 else None
    outside = "zero" if zero and (low, upper) != (None, None) else "clamp"
    return Weight(level=unit, lower=low, upper=upper, outside=outside, **more)  # pyright: ignore[reportArgumentType]


def opsm(delta: float, **more: Any) -> Gate:
    """The off-policy sequence mask: mean(base − target) at most `delta` where the advantage is negative."""
    fields: dict[str, Any] = {"pair": "current/behavior", "action": "zero", **more}
    return Gate(metric="k1", level="sequence", upper=delta, when="negative_advantage", **fields)


def alone(given: Given, gates: Gates) -> Correction:
    """Gates with pairs of their own and no weight.

    Where the settings also say the loss, its ratio divides by proximal. Where they do not, nothing here reads proximal, and
    `bypass` spares the caller those log-probs.
    """
    if not gates:
        return OFF
    return Correction(policies="decoupled" if given.speaks_of("loss") else "bypass", gates=gates)
