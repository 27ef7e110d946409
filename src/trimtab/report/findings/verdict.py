"""What became of a run, in one word, from the curve that it is judged by: its accuracy, or its reward where no answer is ever right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.report.series import Series

Word = Literal["healthy", "degraded", "collapsed", "recovered", "flat", "unknown"]
Slack = Callable[[float, float], float]
"""By how much two values of a curve may differ by chance."""

QUICK, FULL = 160, 400
"""Steps from which clear cases are told apart, and from which a run can be called healthy.

Of the lab's runs some stood at 0.95 and fell as late as step 395; and within 160 steps those that learn have left their start.
"""


@dataclass(frozen=True)
class Verdict:
    """The word, and the points of the curve it rests on."""

    word: Word
    start: tuple[int, float] = (0, float("nan"))
    """Step and value; so are the others."""
    best: tuple[int, float] = (0, float("nan"))
    end: tuple[int, float] = (0, float("nan"))
    fall: tuple[int, int] | None = None
    """The last step at which it still stood and the first at which it had fallen; None where it did not fall."""
    low: tuple[int, float] | None = None
    """The lowest point after the fall began."""


@dataclass(frozen=True)
class Dip:
    """A fall that came back, as points of the curve."""

    before: tuple[int, float]
    """The last value before it."""
    low: tuple[int, float]
    back: tuple[int, float]
    """The first value that is as good as those before."""

    @property
    def depth(self) -> float:
        """How far it fell."""
        return self.before[1] - self.low[1]


def tolerance(one: float, other: float, problems: int) -> float:
    """Three standard errors of a difference between two accuracies on `problems` problems each; never under 0.02."""
    # 0.9 and 0.8 on 256 problems: 3 · √((0.9 · 0.1 + 0.8 · 0.2) / 256) = 0.094.
    spread = sum(share * (1 - share) for share in np.clip([one, other], 0.0, 1.0))
    return max(0.02, 3 * float(np.sqrt(spread / max(problems, 1))))


def accuracy_slack(problems: int) -> Slack:
    """The slack of accuracies on so many problems."""
    return lambda one, other: tolerance(one, other, problems)


def reward_slack(rewards: Series) -> Slack:
    """The slack of rewards, whose noise nobody knows: three deviations of a difference, by the median change from value to value.

    Rewards 1.0, 1.1, 0.9, 1.0: changes 0.1, 0.2, 0.1, median 0.1, deviation of a difference 0.148, slack 0.44.
    """
    changes = np.abs(np.diff(rewards.finite.values))
    usual = 3 * 1.4826 * float(np.median(changes)) if len(changes) else 0.0
    return lambda one, other: max(usual, 0.02 * max(abs(one), abs(other)), 1e-9)


def verdict(curve: Series, *, problems: int = 1, floor: float = 0.0, slack: Slack | None = None) -> Verdict:
    """The verdict on a curve: the last value counts, and the lowest of the last third. Heights are measured from `floor`.

    collapsed: ends under half of its best. recovered: was there in the last third and came back. degraded: ends more than a tenth
    below its best. flat: never left its start. Each beyond the slack; that of accuracies on `problems` problems where none is given.
    """
    part, slack = curve.finite, slack or accuracy_slack(problems)
    if len(part) < 2:
        return Verdict("unknown")
    values = part.values
    peak = int(np.argmax(values))
    start, best, end = float(values[0]), float(values[peak]), float(values[-1])
    half, tenth = (best + floor) / 2, 0.1 * (best - floor)
    late = late_part(part)
    late_low = float(late.values.min())

    word: Word
    if end < half and best - end > slack(best, end):
        word, line = "collapsed", half
    elif (
        late_low < half
        and best - late_low > slack(best, end)
        and int(late.steps[np.argmin(late.values)]) > part.steps[peak]
    ):
        word, line = "recovered", half
    elif best - end > max(slack(best, end), tenth):
        word, line = "degraded", best - max(slack(best, end), tenth)
    elif best - start <= slack(start, best):
        word, line = "flat", None
    else:
        word, line = "healthy", None
    fall, low = (None, None) if line is None else _fall(part, peak, line, lasting=word != "recovered")
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


LOCAL = 5
"""Values before a point whose median says where the curve stood."""


def is_lower(before: float, after: float, floor: float, slack: Slack) -> bool:
    """Whether a value is clearly under one before it: beyond the slack and a tenth of its height."""
    return before - after > max(slack(before, after), 0.1 * (before - floor))


def dips(curve: Series, *, floor: float, slack: Slack) -> list[Dip]:
    """Every fall that came back, in order: under the median of the five values before it, until it is within the slack of that again.

    0.92, 0.78, 0.73, 0.74, 0.91 after values of about 0.92, on 256 problems: one dip, from 0.92 to 0.73 and back at 0.91.
    """
    part, ended, place = curve.finite, list[Dip](), 1
    while place < len(part):
        usual = float(np.median(part.values[max(0, place - LOCAL) : place]))
        if not is_lower(usual, float(part.values[place]), floor, slack):
            place += 1
            continue
        later = part.values[place:].tolist()
        back = next((at for at, value in enumerate(later) if usual - value <= slack(usual, value)), None)
        if back is None:
            break
        low = place + int(np.argmin(later[:back]))
        ended.append(Dip(_point(part, place - 1), _point(part, low), _point(part, place + back)))
        place += back + 1
    return ended
