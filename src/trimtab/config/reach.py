"""How far a token's probability must move before a gate fires, and a bound that fires earlier where that is hardly ever."""

from __future__ import annotations

import math

from trimtab.config.algebra import Gate
from trimtab.config.words import as_written
from trimtab.config.worked import VALUES

FAR = {"one": 5.0, "mean": 1.5}
"""Factors that hardly ever occur: of one token between two engines that round differently or a few versions apart, and of all
tokens of a sequence at once."""
NEAR = {"one": 2.0, "mean": 1.2}
"""Factors that do occur."""
MOST = 1e6
UP_AND_DOWN = (1.0, -1.0)
LIKELY = 0.9
"""The larger of the two probabilities: where a token is likely, the divergences of probabilities reach furthest."""


def factor(gate: Gate) -> float:
    """The least factor between a token's two probabilities, up or down, at which the gate fires; infinite where none does."""
    return min(_least(gate, sign) for sign in UP_AND_DOWN)


def rarely(gate: Gate) -> str | None:
    """A sentence about a gate that hardly ever fires, with a bound that would; None where it does.

    A veto (`every`) is there for what hardly ever happens, and a product over a sequence moves with each of its tokens: of those
    nothing is said.
    """
    kind = _kind(gate)
    if kind is None or gate.action == "observe":
        return None
    least, sign = min((_least(gate, sign), sign) for sign in UP_AND_DOWN)
    if least <= FAR[kind]:
        return None
    unit = "the batch" if gate.level == "batch" else f"a {gate.level}"
    who = "a token" if gate.level == "token" else "one token" if kind == "one" else f"the tokens of {unit}, on average,"
    times = f"more than {MOST:g}" if math.isinf(least) else f"{least:.2g}"
    ends = (f"{LIKELY:g}", f"{LIKELY / min(least, MOST):.1g}")
    start, end = ends if sign < 0 else ends[::-1]
    return (
        f"These bounds hardly ever fire: {who} must change in probability as much as from {start} to {end}, a factor of {times}. "
        f"With {_nearer(gate, NEAR[kind])} a factor of {NEAR[kind]:g} would do."
    )


def _kind(gate: Gate) -> str | None:
    if gate.metric == "age":  # no probability moves it
        return None
    if gate.bounds is not None or gate.bound_scale != "none":  # what a bound comes to is not known here
        return None
    if gate.agg in (None, "max", "min"):
        return "one"
    return "mean" if gate.agg in ("mean", "budget") else None


def _value(gate: Gate, log_factor: float, sign: float) -> float:
    """The metric of a token that rose to `LIKELY`, or fell from it, by a factor."""
    other = LIKELY * math.exp(-log_factor)
    target, behavior = (LIKELY, other) if sign > 0 else (other, LIKELY)
    value = VALUES[gate.metric, gate.direction](math.log(target / behavior), target, behavior)
    return math.exp(value) if gate.metric == "ratio" else value


def _fires(gate: Gate, log_factor: float, sign: float) -> bool:
    value = _value(gate, log_factor, sign)
    return (gate.upper is not None and value > gate.upper) or (gate.lower is not None and value < gate.lower)


def _least(gate: Gate, sign: float) -> float:
    """By halving: every divergence grows as the two probabilities part."""
    low, high = 0.0, math.log(MOST)
    if not _fires(gate, high, sign):
        return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _fires(gate, middle, sign) else (middle, high)
    return math.exp(high)


def _nearer(gate: Gate, times: float) -> str:
    """The bounds at which a smaller factor fires, on the sides that are bounded, to two digits."""
    values = [_value(gate, math.log(times), sign) for sign in UP_AND_DOWN]
    sides = [("upper", max(values))] if gate.upper is not None else []
    sides += [("lower", min(values))] if gate.lower is not None else []
    return " and ".join(f"{name} {as_written(float(f'{value:.2g}'))}" for name, value in reversed(sides))
