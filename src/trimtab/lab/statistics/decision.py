"""From paired differences to a verdict, with every look at the data paid for; the exact test behind it, and the seeds it would take.

Whoever adds seeds until an interval decides will in the end be right about nothing: looking five times at 95 % finds an effect that
is not there in about one of seven. So the looks are fixed beforehand, and each has a fifth of the error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from trimtab.errors import InputError
from trimtab.lab.statistics.intervals import Interval, Numbers, bootstrap_interval

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


EXACT = 16
"""Up to so many differences all 2ⁿ choices of signs are gone through; beyond, `DRAWS` of them and the one observed."""
DRAWS = 99_999
_SLACK = 1e-12


def sign_flip_p(differences: Numbers, *, seed: int = 0) -> float:
    """The share of choices of signs whose mean is at least the one observed: one-sided, for a mean above 0.

    For a mean below 0, give it the differences with their signs turned. No p is under 2⁻ⁿ: seven pairs or fewer decide
    nothing at 0.5 %.
    """
    # 1, 2, −1: sum 2. Of the eight sums ±1 ±2 ±1, which are 4, 2, 2, 0, 0, −2, −2 and −4, three are at least 2: p = 3/8.
    sizes = np.abs(np.asarray(differences, dtype=np.float64))
    total = float(np.sum(differences))
    slack = _SLACK * max(1.0, float(sizes.sum()))
    if len(sizes) <= EXACT:
        choices = np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1
        sums = (1 - 2.0 * choices) @ sizes
        return float((sums >= total - slack).mean())
    drawn = np.random.default_rng(seed).integers(0, 2, (DRAWS, len(sizes)))
    sums = (1 - 2.0 * drawn) @ sizes
    return float(((sums >= total - slack).sum() + 1) / (DRAWS + 1))


POWER = 0.8
"""Chance of deciding with so many seeds, if the differences go on as they began."""
MOST_SEEDS = 10_000


def seeds_needed(distance: float, spread: float, level: float, power: float = POWER) -> int | None:
    """Seeds with which a mean at `distance` from a bound would be told from it, the differences having deviation `spread`.

    Guenther's form of the t-test's size: ((z_level + z_power) · spread / distance)² + z_level² / 2, rounded up; two-sided. None
    where that is above `MOST_SEEDS`, as where there is no distance.
    """
    # level 0.95, power 0.8, distance = spread: (1.96 + 0.842)² + 1.92 = 9.77, so 10 seeds.
    normal = NormalDist()
    z = normal.inv_cdf((1 + level) / 2)
    if distance <= 0:
        return None
    found = ((z + normal.inv_cdf(power)) * spread / distance) ** 2 + z**2 / 2
    return None if found > MOST_SEEDS else max(2, math.ceil(found))
