"""How well a number tells two kinds apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trimtab.lab.statistics.interval import Interval, Numbers


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
