"""From paired differences to a verdict, with every look at the data paid for.

Whoever adds seeds until an interval decides will in the end be right about nothing: looking five times at 95 % finds an effect that
is not there in about one of seven. So the looks are fixed beforehand, and each has a fifth of the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.errors import InputError
from trimtab.lab.statistics.interval import Interval, Numbers, bootstrap_interval
from trimtab.lab.statistics.power import seeds_needed
from trimtab.lab.statistics.sign_flip import sign_flip_p

ClaimOutcome = Literal["confirmed", "contradicted", "not decided"]
Direction = Literal["higher", "lower", "same"]
"""What a claim says of the first arm against the second."""

LOOKS = (8, 12, 16, 24, 32)
"""Seeds at which the data are looked at; between two of them nothing is decided."""
ERROR = 0.05
"""Greatest chance of a wrong verdict over all looks."""
LEVEL = 1 - ERROR / len(LOOKS)
"""Confidence at each look: 99 %."""


@dataclass(frozen=True)
class Decision:
    """A verdict and what it rests on."""

    outcome: ClaimOutcome
    reason: str
    difference: Interval
    seeds: int
    """Pairs that counted."""
    needed: int | None
    """Seeds that would decide, if the differences go on as they began; None once decided, or where no number would."""


def next_look(seeds: int) -> int | None:
    """The look that comes after so many seeds; None after the last."""
    return next((each for each in LOOKS if each > seeds), None)


def claim_decision(differences: Numbers, expected: Direction, margin: float) -> Decision:
    """The verdict on `expected` by the differences, first arm less second, in the order of their seeds: that of the first look that
    decides, else of the last there was.

    higher (lower): confirmed where the interval lies above (below) 0; contradicted where it rules out a gain (a loss) of
    `margin`. same: confirmed where it lies within ±`margin`; contradicted where it rules out 0. A bound counts as passed only if
    the exact test agrees.
    """
    if margin <= 0:
        raise InputError(
            f"claim_decision needs a margin above 0, got {margin}. It is the least difference that matters."
        )
    values = np.asarray(differences, dtype=np.float64)
    if len(values) < LOOKS[0]:  # between looks nothing is said: the interval of two seeds is as short as chance has it
        nothing = Interval(float(values.mean()) if len(values) else float("nan"), -math.inf, math.inf, LEVEL)
        return Decision("not decided", f"{len(values)} of at least {LOOKS[0]} seeds", nothing, len(values), None)
    looks = [each for each in LOOKS if each <= len(values)]
    found = [_at_look(values[:look], expected, margin) for look in looks]
    return next((each for each in found if each.outcome != "not decided"), found[-1])


def _at_look(values: Numbers, expected: Direction, margin: float) -> Decision:
    interval = bootstrap_interval(values, LEVEL)
    sign = -1.0 if expected == "lower" else 1.0
    outcome, reason = _outcome(values * sign, _turn(interval, sign), expected, margin)
    needed = _needed(values, margin, expected) if outcome == "not decided" else None
    return Decision(outcome, reason, interval, len(values), needed)


def _turn(interval: Interval, sign: float) -> Interval:
    if sign > 0:
        return interval
    return Interval(-interval.estimate, -interval.upper, -interval.lower, interval.level)


def _outcome(values: Numbers, interval: Interval, expected: Direction, margin: float) -> tuple[ClaimOutcome, str]:
    """The verdict; `values` and interval are turned so that a claim of `lower` reads as `higher`."""

    def above(bound: float) -> bool:
        return interval.lower > bound and sign_flip_p(values - bound) <= (1 - LEVEL) / 2

    def below(bound: float) -> bool:
        return interval.upper < bound and sign_flip_p(bound - values) <= (1 - LEVEL) / 2

    gain, size = ("loss", "lower") if expected == "lower" else ("gain", "higher")
    if expected != "same":
        if above(0.0):
            return "confirmed", f"{size} than the other arm"
        if below(0.0):
            return "contradicted", f"{'higher' if expected == 'lower' else 'lower'} than the other arm"
        if below(margin):
            return "contradicted", f"a {gain} of {margin:g} or more is ruled out"
        return "not decided", "the interval holds both 0 and a difference that matters"
    if above(-margin) and below(margin):
        return "confirmed", f"no difference of {margin:g} or more"
    if above(0.0) or below(0.0):
        return "contradicted", "one arm is higher"
    return "not decided", "the interval holds both 0 and a difference that matters"


def _needed(values: Numbers, margin: float, expected: Direction) -> int | None:
    """Seeds that would decide it, by the nearer of the bounds at which it would be decided."""
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    turned = -mean if expected == "lower" else mean
    distances = [abs(mean), margin - (abs(mean) if expected == "same" else turned)]
    found = [each for each in (seeds_needed(distance, spread, LEVEL) for distance in distances) if each is not None]
    return max(min(found), LOOKS[0]) if found else None
