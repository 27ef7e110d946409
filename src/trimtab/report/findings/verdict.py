"""What became of a run, in one word, from its accuracy alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.report.series import Series

Word = Literal["healthy", "degraded", "collapsed", "unstable", "flat", "unknown"]


QUICK, FULL = 160, 400
"""Steps from which clear cases are told apart, and from which a run can be called healthy.

Of the lab's runs some stood at 0.95 and fell as late as step 395; and within 160 steps those that learn have left their start.
"""


@dataclass(frozen=True)
class Verdict:
    """The word, and the points of the curve it rests on."""

    word: Word
    start: tuple[int, float] = (0, float("nan"))
    """Step and accuracy; so are the others."""
    best: tuple[int, float] = (0, float("nan"))
    end: tuple[int, float] = (0, float("nan"))
    fall: tuple[int, int] | None = None
    """The last step at which it still stood and the first at which it had fallen; None where it did not fall."""
    low: tuple[int, float] | None = None
    """The lowest point after the fall began."""


def tolerance(one: float, other: float, problems: int) -> float:
    """Three standard errors of a difference between two accuracies on `problems` problems each; never under 0.02."""
    # 0.9 and 0.8 on 256 problems: 3 · √((0.9 · 0.1 + 0.8 · 0.2) / 256) = 0.094.
    spread = sum(share * (1 - share) for share in np.clip([one, other], 0.0, 1.0))
    return max(0.02, 3 * float(np.sqrt(spread / max(problems, 1))))


def verdict(accuracy: Series, *, problems: int) -> Verdict:
    """The verdict on an accuracy curve: the last value counts, and the lowest of the last third.

    collapsed: ends under half of its best. unstable: was there in the last third and came back. degraded: ends more than a tenth
    below its best. flat: never left its start. Each beyond the noise of `problems` problems.
    """
    part = accuracy.finite
    if len(part) < 2:
        return Verdict("unknown")
    values = part.values
    peak = int(np.argmax(values))
    start, best, end = float(values[0]), float(values[peak]), float(values[-1])
    slack = tolerance(best, end, problems)
    late = late_part(part)
    late_low = float(late.values.min())

    word: Word
    if end < best / 2 and best - end > slack:
        word, line = "collapsed", best / 2
    elif late_low < best / 2 and best - late_low > slack and int(late.steps[np.argmin(late.values)]) > part.steps[peak]:
        word, line = "unstable", best / 2
    elif best - end > max(slack, 0.1 * best):
        word, line = "degraded", best - max(slack, 0.1 * best)
    elif best - start <= tolerance(start, best, problems):
        word, line = "flat", None
    else:
        word, line = "healthy", None
    fall, low = (None, None) if line is None else _fall(part, peak, line, lasting=word != "unstable")
    return Verdict(word, _point(part, 0), _point(part, peak), _point(part, len(part) - 1), fall, low)


def late_part(part: Series) -> Series:
    """The last third of the steps of a curve that has any."""
    return part.within(int(part.steps[0] + 2 * (part.steps[-1] - part.steps[0]) // 3), int(part.steps[-1]))


def _point(part: Series, index: int) -> tuple[int, float]:
    return int(part.steps[index]), float(part.values[index])


def _fall(part: Series, peak: int, line: float, *, lasting: bool) -> tuple[tuple[int, int], tuple[int, float]]:
    """Between which steps the curve went under `line`: for good, or (not lasting) into its deepest dip after the peak."""
    standing = part.values >= line
    deepest = peak + int(np.argmin(part.values[peak:]))
    until = len(part) if lasting else deepest
    last = int(np.flatnonzero(standing[:until])[-1])
    after = last + int(np.argmin(part.values[last:]))
    return (int(part.steps[last]), int(part.steps[last + 1])), _point(part, after)
