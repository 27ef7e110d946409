"""Estimates and the values that the data do not rule out: means, shares, areas under a ROC curve, and how long runs last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import InputError

Numbers = NDArray[np.float64]
RESAMPLES = 19_999
FEWEST_VALUES = 8
"""Values under which a mean gets no interval: three seeds say where a mean may be, and nothing of how far off."""
DISAGREEMENTS = 201
"""Shares of pairs that disagree at which an exact interval looks for the least favourable one."""
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """An estimate with its bounds."""

    estimate: float
    lower: float
    upper: float
    level: float
    """Confidence of the two bounds together: 0.95."""


def mean_interval(
    values: Numbers, level: float = 0.95, *, ends: tuple[float, float] = (-1.0, 1.0), seed: int = 0
) -> Interval:
    """The mean of differences that lie within `ends`, with the wider of two intervals on each side.

    One is Student's t, exact for normal values; the other is the studentised bootstrap with half the error, which follows skewed
    ones: together 98 to 100 % of samples of 8, 12 and 16 for a level of 99 %. Where all values are equal the bounds say how many
    others could have been missed. What happens to one seed in five may be missing from eight, and where the others differ a
    little, no interval then knows of it. `FEWEST_VALUES` values or more.
    """
    values = _checked(values, FEWEST_VALUES, "mean_interval")
    mean, spread = float(values.mean()), float(values.std(ddof=1))
    if spread <= _ROUNDING * float(
        np.abs(values).max()
    ):  # 0.516 of eight equal ones may be all there is: 0.516⁸ = 0.005
        seen = ((1 - level) / 2) ** (1 / len(values))
        lower, upper = (seen * mean + (1 - seen) * end for end in ends)
        return Interval(mean, lower, upper, level)
    error = spread / math.sqrt(len(values))
    low, high = _studentised_tails(values - mean, (1 - level) / 4, seed)
    usual = student_quantile((1 + level) / 2, len(values) - 1)
    lower, upper = mean - error * max(usual, high), mean + error * max(usual, -low)
    return Interval(mean, max(lower, ends[0]), min(upper, ends[1]), level)


def _studentised_tails(centred: Numbers, tail: float, seed: int) -> tuple[float, float]:
    """The lowest and the highest `tail` of t = mean / (deviation / √n) over resamples of values whose mean is 0."""
    counts, many = _resamples(len(centred), seed), len(centred)
    means = counts @ centred / many
    variances = np.maximum(counts @ centred**2 / many - means**2, 0.0) * many / (many - 1)
    errors = np.sqrt(variances / many)
    far = errors <= _ROUNDING * float(np.abs(centred).max())  # one value drawn again and again
    t = np.where(far, np.where(means < 0, -math.inf, math.inf), means / np.where(far, 1.0, errors))
    place = max(math.floor((RESAMPLES + 1) * tail), 1)
    t.partition((place - 1, len(t) - place))
    return float(t[place - 1]), float(t[-place])


@cache
def _resamples(many: int, seed: int) -> Numbers:
    """How often each of so many values is drawn, resample by resample."""
    return np.random.default_rng(seed).multinomial(many, np.full(many, 1 / many), RESAMPLES).astype(np.float64)


def student_quantile(share: float, freedom: int) -> float:
    """The value under which so much of Student's t distribution lies, for shares of a half or more.

    By bisection on the share, which for t = √ν tan θ is ½ + (a finite sum of powers of cos θ): Abramowitz and Stegun 26.7.3 and 26.7.4.
    """
    # ν = 1 is Cauchy: t = tan(π (share − ½)), so 0.995 gives 63.66; ν = 7 gives 3.499.
    angle = _bisect(lambda part: _student_share(part * math.pi / 2, freedom) - share)
    return math.sqrt(freedom) * math.tan(angle * math.pi / 2)


def _student_share(angle: float, freedom: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    even = freedom % 2 == 0
    term, total = (1.0, 1.0) if even else (cosine, cosine if freedom > 1 else 0.0)
    for power in range(2 if even else 3, freedom - 1, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    return 0.5 + (sine * total / 2 if even else (angle + sine * total) / math.pi)


def paired_share_interval(differences: Numbers, level: float = 0.95) -> Interval:
    """A difference of two shares by pairs: each −1, 0 or 1; exact, so that at 8 of 8 it is still longer than nothing.

    The bounds are those differences of the two shares at which a mean as far off as this one has chance (1 − level) / 2 at most,
    however often the two runs of a pair agree.
    """
    # Eight times −1: up to δ at which q⁸ = 0.005 can be, q = 0.516 the chance of −1 and the rest +1: δ = 1 − 2 · 0.516 = −0.03.
    values = _checked(differences, 1, "paired_share_interval")
    if not bool(np.isin(values, (-1.0, 0.0, 1.0)).all()):
        raise InputError("paired_share_interval needs differences of −1, 0 or 1, got others. Give it mean_interval.")
    many, total = len(values), round(float(values.sum()))
    tail = (1 - level) / 2
    lower = -1.0 if total == -many else _lowest_difference(total, many, tail)
    upper = 1.0 if total == many else -_lowest_difference(-total, many, tail)
    return Interval(total / many, lower, upper, level)


def _lowest_difference(total: int, many: int, tail: float) -> float:
    """The least difference of shares at which a sum of `total` or more has a chance above `tail`."""
    return 2 * _bisect(lambda part: _chance_of_sum(total, many, 2 * part - 1) - tail) - 1


def _chance_of_sum(total: int, many: int, difference: float) -> float:
    """The greatest chance of a sum of `total` or more over all shares of pairs that disagree."""
    minus = np.linspace(max(0.0, -difference), (1 - difference) / 2, DISAGREEMENTS)
    plus = np.clip(minus + difference, 0.0, 1.0)
    chances = np.zeros((DISAGREEMENTS, 2 * many + 1))
    chances[:, many] = 1.0
    for _ in range(many):
        moved = chances * np.clip(1 - minus - plus, 0.0, 1.0)[:, None]
        moved[:, 1:] += chances[:, :-1] * plus[:, None]
        moved[:, :-1] += chances[:, 1:] * minus[:, None]
        chances = moved
    return float(chances[:, total + many :].sum(axis=1).max())


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
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or len(numbers) < least or not bool(np.isfinite(numbers).all()):
        raise InputError(
            f"{who} needs {least} or more finite numbers in a row, got {numbers.size} values of shape {numbers.shape}."
        )
    return numbers


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


def survival_curve(lifetimes: Sequence[Lifetime], level: float = 0.95) -> list[SurvivalPoint]:
    """The share still standing after each step at which a run fell, from step 0 to the last; each with its Clopper–Pearson interval.

    Runs that stood were watched to the same last step, as those of one claim are: nobody leaves early, so that each share is a count.
    """
    if not lifetimes:
        raise InputError("survival_curve needs one run or more, got none.")
    last = max(each.steps for each in lifetimes)
    if any(not each.fell and each.steps < last for each in lifetimes):
        raise InputError(f"survival_curve needs runs that stood to be watched for {last} steps, got a shorter one.")
    many, points = len(lifetimes), list[SurvivalPoint]()
    for step in sorted({0, last, *(each.steps for each in lifetimes)}):
        standing = sum(not each.fell or each.steps > step for each in lifetimes)
        share = binomial_interval(standing, many, level)
        points.append(SurvivalPoint(step, share.estimate, share.lower, share.upper))
    return points
