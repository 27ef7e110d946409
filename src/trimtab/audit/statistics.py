"""Statistics of tokens that come in sequences: tokens of one sequence are no independent witnesses."""

from __future__ import annotations

import numpy as np

from trimtab.audit.gap import Floats, Ints


def sequence_means(values: Floats, sequence: Ints) -> Floats:
    """Mean of each sequence that occurs, in their order."""
    _, owner, count = np.unique(sequence, return_inverse=True, return_counts=True)
    return np.bincount(owner, values) / count


def mean_with_error(values: Floats, sequence: Ints) -> tuple[float, float]:
    """Mean over tokens, and its standard error with sequences drawn independently.

    Two sequences with 1, 1 and 3: mean 5/3; residuals −4/3 and 4/3 by sequence; error √(2 · (4/3)² · 2) / 3 = 0.89.
    """
    _, owner = np.unique(sequence, return_inverse=True)
    mean = float(values.mean())
    sums = np.bincount(owner, values - mean)
    many = len(sums)
    error = float(np.sqrt((sums**2).sum() * many / max(many - 1, 1))) / len(values)
    return mean, error


def ranks_of(values: Floats) -> Floats:
    """Rank of each value; ties share their mean rank."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]


def rank_correlation(one: Floats, other: Floats) -> tuple[float, float]:
    """Spearman's ρ, and its z were there none."""
    if len(one) < 4 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0, 0.0
    rho = float(np.corrcoef(ranks_of(one), ranks_of(other))[0, 1])
    return rho, rho * float(np.sqrt(len(one) - 1))
