"""Estimates and the values that the data do not rule out: means, shares, areas under a ROC curve, and how long runs last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import InputError

Numbers = NDArray[np.float64]
RESAMPLES = 9999
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """An estimate with its bounds."""

    estimate: float
    lower: float
    upper: float
    level: float
    """Confidence of the two bounds together: 0.95."""


def bootstrap_interval(values: Numbers, level: float = 0.95, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean of `values` with its bias-corrected and accelerated (BCa) bootstrap interval.

    Efron 1987: percentiles of the means of resamples, shifted by z₀ (how many of them lie under the mean) and by the acceleration
    a (the skew of the means with one value left out). Two values or more; where all are equal, the interval is that value. With
    few values it is too short (eight normal ones: 89 % for 95 %), so a decision asks `sign_flip_p` too.
    """
    values = _checked(values, 2, "bootstrap_interval")
    mean = float(values.mean())
    if bool((values == values[0]).all()):
        return Interval(float(values[0]), float(values[0]), float(values[0]), level)
    drawn = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    means = values[drawn].mean(axis=1)
    normal = NormalDist()
    slack = _ROUNDING * float(
        np.abs(values).max()
    )  # resamples with the very mean are many where runs fall or stand; they count half
    under = (float((means < mean - slack).mean()) + float((means <= mean + slack).mean())) / 2
    z0 = normal.inv_cdf(min(max(under, 0.5 / resamples), 1 - 0.5 / resamples))
    a = acceleration(values)
    tail = normal.inv_cdf((1 - level) / 2)
    shares = [normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) for z in (tail, -tail)]
    lower, upper = np.quantile(means, shares)
    return Interval(mean, float(lower), float(upper), level)


def acceleration(values: Numbers) -> float:
    """a of BCa for a mean: Σd³ / 6(Σd²)^1.5, where d is the mean less each value, over n − 1 (what leaving it out changes)."""
    # 0, 0, 3: leaving each out gives 1.5, 1.5, 0, of mean 1; d = −.5, −.5, 1; a = .75 / (6 · 1.5^1.5) = 0.068.
    left_out = (values.sum() - values) / (len(values) - 1)
    d = left_out.mean() - left_out
    squares = float((d**2).sum())
    return 0.0 if squares == 0 else float((d**3).sum()) / (6 * squares**1.5)


def binomial_interval(hits: int, tries: int, level: float = 0.95) -> Interval:
    """A share with its Clopper–Pearson interval: exact, and at 0 of n or n of n still longer than nothing."""
    if not 0 <= hits <= tries or tries < 1:
        raise InputError(f"binomial_interval needs 0 <= hits <= tries and a try, got {hits} of {tries}.")
    tail = (1 - level) / 2
    lower = 0.0 if hits == 0 else _bisect(lambda p: 1 - _binomial_cdf(hits - 1, tries, p) - tail)
    upper = 1.0 if hits == tries else _bisect(lambda p: tail - _binomial_cdf(hits, tries, p))
    return Interval(hits / tries, lower, upper, level)


def _binomial_cdf(most: int, tries: int, p: float) -> float:
    return math.fsum(math.comb(tries, k) * p**k * (1 - p) ** (tries - k) for k in range(most + 1))


def _bisect(rising: Callable[[float], float]) -> float:
    """Where a rising function of a share is 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _checked(values: Numbers, least: int, who: str) -> Numbers:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or len(found) < least or not bool(np.isfinite(found).all()):
        raise InputError(
            f"{who} needs {least} or more finite numbers in a row, got {found.size} values of shape {found.shape}."
        )
    return found


def roc_area(scores: Numbers, positive: NDArray[np.bool_]) -> float:
    """Area under the ROC curve: the chance that a positive case scores above a negative one, ties counting half.

    NaN where one kind has no case.
    """
    # scores 1, 2, 3, 4 with positives 2 and 4: of the four pairs 2>1, 4>1, 4>3 and not 2>3: 0.75.
    scores, positive = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=np.bool_)
    many, few = int(positive.sum()), int((~positive).sum())
    if not many or not few:
        return float("nan")
    ranks = _middle_ranks(scores)
    return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))


def _middle_ranks(scores: Numbers) -> Numbers:
    """Ranks from 1; equal scores share the middle of theirs."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((2 * last - counts + 1) / 2)[inverse]


def roc_interval(
    scores: Numbers,
    positive: NDArray[np.bool_],
    clusters: NDArray[np.int64],
    level: float = 0.95,
    *,
    resamples: int = 499,
    seed: int = 0,
) -> Interval:
    """The area with its percentile bootstrap interval; whole clusters are drawn, as cases of one run are no independent cases.

    Resamples with one kind only are left out. NaN bounds where the area has none.
    """
    scores, positive = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=np.bool_)
    area = roc_area(scores, positive)
    if np.isnan(area):
        return Interval(area, float("nan"), float("nan"), level)
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(clusters == each) for each in np.unique(clusters)]
    drawn = rng.integers(0, len(members), (resamples, len(members)))
    areas = [
        roc_area(scores[rows], positive[rows]) for rows in (np.concatenate([members[i] for i in row]) for row in drawn)
    ]
    lower, upper = np.nanquantile(areas, [(1 - level) / 2, (1 + level) / 2])
    return Interval(area, float(lower), float(upper), level)


@dataclass(frozen=True)
class Lifetime:
    """How long one run was watched, and whether it fell then or was still standing."""

    steps: int
    fell: bool


@dataclass(frozen=True)
class SurvivalPoint:
    """The share still standing from a step on, until the next point."""

    step: int
    share: float
    lower: float
    upper: float
    at_risk: int
    """Runs that stood until then and were still watched."""


def kaplan_meier(lifetimes: Sequence[Lifetime], level: float = 0.95) -> list[SurvivalPoint]:
    """The share standing after each step at which a run fell or ceased to be watched, from step 0.

    Bounds by Greenwood's variance on the scale log(−log S), which keeps them within 0 and 1. That variance is not defined while
    all stand or once none does: there the bounds are Clopper–Pearson's for the runs at the start.
    """
    if not lifetimes:
        raise InputError("kaplan_meier needs one run or more, got none.")
    many = len(lifetimes)
    z = NormalDist().inv_cdf((1 + level) / 2)
    none_fell, all_fell = binomial_interval(many, many, level), binomial_interval(0, many, level)
    points = [SurvivalPoint(0, 1.0, none_fell.lower, 1.0, many)]
    share, variance = 1.0, 0.0
    for step in sorted({each.steps for each in lifetimes}):
        at_risk = sum(each.steps >= step for each in lifetimes)
        fell = sum(each.steps == step and each.fell for each in lifetimes)
        share *= 1 - fell / at_risk
        variance += fell / (at_risk * (at_risk - fell)) if fell < at_risk else 0.0
        if share == 1.0:
            lower, upper = none_fell.lower, 1.0
        elif share == 0.0:
            lower, upper = 0.0, all_fell.upper
        else:
            spread = z * math.sqrt(variance) / abs(math.log(share))
            lower, upper = share ** math.exp(spread), share ** math.exp(-spread)
        points.append(SurvivalPoint(step, share, lower, upper, at_risk))
    return points
