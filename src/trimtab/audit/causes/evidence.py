"""The result of testing a cause, and statistics of tokens that come in sequences: those of one sequence are no independent witnesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.audit.gap import Floats, Gap, Ints

CauseVerdict = Literal["ruled out", "suspected", "found", "inconclusive"]


@dataclass(frozen=True, eq=False, kw_only=True)
class CauseResult:
    """One cause, judged."""

    verdict: CauseVerdict
    statistic: str
    """What was measured, as a sentence."""
    share: float | None = None
    """What the cause explains of the gap that the causes above left."""
    lacks: str = ""
    """The data that would decide, where the verdict is inconclusive."""
    remedy: str = ""
    """What to do, where that depends on the numbers; else the remedy of the cause."""
    rest: Gap | None = None
    """The gap without this cause; None: as it was."""


NO_GAP = CauseResult(verdict="ruled out", statistic="There is no gap left to explain.")


def inconclusive(data: str, statistic: str = "") -> CauseResult:
    """The verdict where this data is missing."""
    return CauseResult(verdict="inconclusive", statistic=statistic or "No data to test this.", lacks=data)


BLURRED = CauseResult(
    verdict="inconclusive",
    statistic="A cause above was found, and its effect could be removed only in part.",
    lacks="a batch in which the causes above are fixed",
)


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
