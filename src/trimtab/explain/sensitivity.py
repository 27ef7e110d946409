"""How far a token's probability must move before a gate fires, and a bound that fires earlier where that is hardly ever."""

from __future__ import annotations

import math

from trimtab.config.correction import Gate
from trimtab.config.divergences import plain_value
from trimtab.explain.arithmetic import LENGTH
from trimtab.explain.gate_words import as_written

FAR = {"token": 5.0, "mean": 1.5}
"""Factors that hardly ever occur: of a token between two engines that round differently or a few versions apart, and of all
tokens of a sequence at once."""
NEAR = {"token": 2.0, "one": 2.0, "mean": 1.2}
"""Factors that do occur."""
MOST = 1e6
"""What one token among many may well change by: the tails are heavy (NeMo-RL #4243: most sequences of a run rejected by a mean of e^|ℓ|
above 2)."""
MANY = {"segment": LENGTH, "sequence": LENGTH, "batch": 100 * LENGTH}
"""How many tokens the one stands among."""
UP_AND_DOWN = (1.0, -1.0)
LIKELY = 0.9
"""The larger of the two probabilities: where a token is likely, the divergences of probabilities reach furthest."""


def factor(gate: Gate) -> float:
    """The least factor between a token's two probabilities, up or down, at which the gate fires; infinite where none does."""
    return min(_least(gate, sign) for sign in UP_AND_DOWN)


def factor_of_one(gate: Gate) -> float:
    """The same where a single token of the unit changes and the others stay; a mean has to be moved by it alone."""
    share = 1 / MANY[gate.level] if _kind(gate) == "mean" else 1.0
    return min(_least(gate, sign, share) for sign in UP_AND_DOWN)


def rarely_fires(gate: Gate) -> str | None:
    """A sentence about a gate that hardly ever fires, with a bound that would; None where it does.

    An extreme and a mean fire for one token far enough out, and such tokens occur: of a mean that needs one the sentence says so and
    no more. A veto (`every`) is there for what hardly ever happens, and a product over a sequence moves with each of its tokens: of
    those nothing is said.
    """
    kind = _kind(gate)
    if kind is None or gate.action == "observe":
        return None
    least, sign = min((_least(gate, sign), sign) for sign in UP_AND_DOWN)
    if least <= FAR.get(kind, MOST):
        return None
    one = factor_of_one(gate)
    if kind == "mean" and one <= MOST:
        return (
            f"These bounds react to single outliers, hardly to drift: one token of {MANY[gate.level]:,} that changes in probability by "
            f"{_times(one)} exceeds them; if all tokens change alike, it takes {_times(least)}."
        )
    unit = "the batch" if gate.level == "batch" else f"a {gate.level}"
    who = {"token": "a token", "one": "one token"}.get(kind, f"the tokens of {unit}, on average,")
    ends = (f"{LIKELY:g}", f"{LIKELY / min(least, MOST):.1g}")
    start, end = ends if sign < 0 else ends[::-1]
    alone = f", and one token of {MANY[gate.level]:,} by {_times(one)}" if kind == "mean" else ""
    return (
        f"These bounds hardly ever fire: {who} must change in probability as much as from {start} to {end}, {_times(least)}{alone}. "
        f"With {_nearer(gate, NEAR[kind])} a factor of {NEAR[kind]:g} is enough."
    )


def _times(least: float) -> str:
    """A factor in words, to two digits."""
    return f"a factor of more than {MOST:,.0f}" if math.isinf(least) else f"a factor of {float(f'{least:.2g}'):,.6g}"


def _kind(gate: Gate) -> str | None:
    if gate.metric == "age":  # no probability moves it
        return None
    if gate.bounds is not None or gate.bound_scale != "none":  # what a bound comes to is not known here
        return None
    if gate.agg is None:
        return "token"
    if gate.agg in ("max", "min"):
        return "one"
    return "mean" if gate.agg in ("mean", "budget") else None


def _value(gate: Gate, log_factor: float, sign: float, share: float = 1.0) -> float:
    """The metric where that share of the tokens rose to `LIKELY`, or fell from it, by a factor."""
    other = LIKELY * math.exp(-log_factor)
    target, behavior = (LIKELY, other) if sign > 0 else (other, LIKELY)
    rest = plain_value(gate.metric, gate.direction, 0.0, LIKELY, LIKELY)
    moved = plain_value(gate.metric, gate.direction, math.log(target / behavior), target, behavior)
    value = rest + share * (moved - rest)
    return math.exp(value) if gate.metric == "ratio" else value


def _fires(gate: Gate, log_factor: float, sign: float, share: float) -> bool:
    value = _value(gate, log_factor, sign, share)
    return (gate.upper is not None and value > gate.upper) or (gate.lower is not None and value < gate.lower)


def _least(gate: Gate, sign: float, share: float = 1.0) -> float:
    """By halving: every divergence grows as the two probabilities part."""
    low, high = 0.0, math.log(MOST)
    if not _fires(gate, high, sign, share):
        return math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _fires(gate, middle, sign, share) else (middle, high)
    return math.exp(high)


def _nearer(gate: Gate, times: float) -> str:
    """The bounds at which a smaller factor fires, on the sides that are bounded, to two digits."""
    values = [_value(gate, math.log(times), sign) for sign in UP_AND_DOWN]
    sides = [("upper", max(values))] if gate.upper is not None else []
    sides += [("lower", min(values))] if gate.lower is not None else []
    return " and ".join(f"{name} {as_written(float(f'{value:.2g}'))}" for name, value in reversed(sides))
