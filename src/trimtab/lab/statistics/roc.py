"""How well a number tells two kinds apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trimtab.lab.statistics.interval import RESAMPLES, Interval, Numbers


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
    scores: Numbers, positive: NDArray[np.bool_], level: float = 0.95, *, resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """The area with its percentile bootstrap interval; positives and negatives are each drawn among themselves."""
    scores, positive = np.asarray(scores, dtype=np.float64), np.asarray(positive, dtype=np.bool_)
    area = roc_area(scores, positive)
    if np.isnan(area):
        return Interval(area, float("nan"), float("nan"), level)
    rng = np.random.default_rng(seed)
    yes, no = scores[positive], scores[~positive]
    # All pairs once; a resample then only counts them anew.
    wins = (yes[:, None] > no[None, :]) + 0.5 * (yes[:, None] == no[None, :])
    areas = np.empty(resamples)
    for place in range(resamples):
        one, other = rng.integers(0, len(yes), len(yes)), rng.integers(0, len(no), len(no))
        areas[place] = wins[np.ix_(one, other)].mean()
    lower, upper = np.quantile(areas, [(1 - level) / 2, (1 + level) / 2])
    return Interval(area, float(lower), float(upper), level)
