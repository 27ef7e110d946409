"""From paired differences to a verdict, with every look at the data paid for; the exact test behind it, and the seeds it would take.

Whoever adds seeds until an interval decides will in the end be right about nothing: looking five times at 95 % finds an effect that
is not there in about one of seven. So the looks are fixed beforehand, and each has a fifth of the error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from trimtab.errors import InputError
from trimtab.lab.statistics.intervals import Interval, Numbers, mean_interval, paired_share_interval

ClaimOutcome = Literal["confirmed", "contradicted", "no gain", "no loss", "not decided"]
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
    p: float = 1.0
    """Chance of such a verdict where it is wrong, both sides and all looks counted; 1 where nothing is decided."""


def next_look(seeds: int) -> int | None:
    """The look that comes after so many seeds; None after the last."""
    return next((each for each in LOOKS if each > seeds), None)


def claim_decision(differences: Numbers, expected: Direction, margin: float, *, shares: bool = False) -> Decision:
    """The verdict on `expected` by the differences, first arm less second, in the order of their seeds, at the last look they reach.

    higher (lower): confirmed where the interval lies above (below) 0, contradicted where it lies on the other side, and no gain (no
    loss) where it rules out `margin` only. same: confirmed where it lies within ±`margin`, contradicted where it lies outside. A bound
    counts as passed only if the exact test agrees. `shares`: differences of −1, 0 and 1, which have an exact interval.
    """
    if margin <= 0:
        raise InputError(
            f"claim_decision needs a margin above 0, got {margin}. It is the least difference that matters."
        )
    values = np.asarray(differences, dtype=np.float64)
    look = max((each for each in LOOKS if each <= len(values)), default=0)
    if not look:
        nothing = Interval(float(values.mean()) if len(values) else float("nan"), -math.inf, math.inf, LEVEL)
        return Decision("not decided", f"{len(values)} of at least {LOOKS[0]} seeds", nothing, len(values), None)
    values = values[:look]
    interval = paired_share_interval(values, LEVEL) if shares else mean_interval(values, LEVEL)
    outcome, reason, chance = _outcome(values, interval, expected, margin)
    needed = _needed(values, margin, expected) if outcome == "not decided" else None
    return Decision(outcome, reason, interval, look, needed, min(1.0, 2 * len(LOOKS) * chance))


def _outcome(
    values: Numbers, interval: Interval, expected: Direction, margin: float
) -> tuple[ClaimOutcome, str, float]:
    """The verdict, why, and the one-sided chance of it under the bound that decided."""

    def above(bound: float) -> float:
        return _chance(values - bound) if interval.lower > bound else 1.0

    def below(bound: float) -> float:
        return _chance(bound - values) if interval.upper < bound else 1.0

    rows: tuple[tuple[ClaimOutcome, str, float], ...]
    if expected == "higher":
        rows = (
            ("confirmed", "higher than the other arm", above(0.0)),
            ("contradicted", "lower than the other arm", below(0.0)),
            ("no gain", f"a gain of {margin:g} or more is ruled out", below(margin)),
        )
    elif expected == "lower":
        rows = (
            ("confirmed", "lower than the other arm", below(0.0)),
            ("contradicted", "higher than the other arm", above(0.0)),
            ("no loss", f"a loss of {margin:g} or more is ruled out", above(-margin)),
        )
    else:
        rows = (
            ("confirmed", f"no difference of {margin:g} or more", max(above(-margin), below(margin))),
            ("contradicted", f"one arm is higher by {margin:g} or more", min(above(margin), below(-margin))),
        )
    undecided = ("not decided", "the interval contains both 0 and a difference that matters", 1.0)
    return next((row for row in rows if row[2] < 1.0), undecided)


def _chance(values: Numbers) -> float:
    """The exact test's chance of a mean so far above 0; 1 where it is not small enough to decide."""
    chance = sign_flip_p(values)
    return chance if chance <= (1 - LEVEL) / 2 else 1.0


def _needed(values: Numbers, margin: float, expected: Direction) -> int | None:
    """Seeds that would decide it, by the nearer of the bounds at which it would be decided."""
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    turned = -mean if expected == "lower" else mean
    distances = [abs(abs(mean) - margin)] if expected == "same" else [abs(mean), margin - turned]
    counts = [each for each in (seeds_needed(distance, spread, LEVEL) for distance in distances) if each is not None]
    least = max(min(counts, default=MOST_SEEDS + 1), len(values) + 1)
    return next((look for look in LOOKS if look >= least), least if least <= MOST_SEEDS else None)


def false_discovery_rates(chances: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's q of each p: of all verdicts with that q or less, no greater share is expected to be wrong."""
    # 0.01, 0.04, 0.03, 1: sorted 0.01 · 4/1, 0.03 · 4/2, 0.04 · 4/3, 1; each the least of itself and those after it.
    order = np.argsort(chances, kind="stable")
    ranked = np.asarray(chances)[order] * len(chances) / np.arange(1, len(chances) + 1)
    rates = np.empty(len(chances))
    rates[order] = np.minimum.accumulate(ranked[::-1])[::-1]
    return np.minimum(rates, 1.0).tolist()


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
    seeds = ((z + normal.inv_cdf(power)) * spread / distance) ** 2 + z**2 / 2
    return None if seeds > MOST_SEEDS else max(2, math.ceil(seeds))
