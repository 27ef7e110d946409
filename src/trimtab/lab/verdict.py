"""What became of a cell, in one word. Curves in, words out.

The last evaluation and the lowest of the last third decide, never a mean: a run can stand at 0.97, fall to 0.05 within twenty
steps and be called degraded by the mean of its last two evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab.config.kept_shares import STARVED
from trimtab.report.findings.filtering import starved_steps
from trimtab.report.findings.verdict import FULL as FULL
from trimtab.report.findings.verdict import QUICK as QUICK
from trimtab.report.findings.verdict import late_part, tolerance
from trimtab.report.findings.verdict import verdict as own_verdict
from trimtab.report.html import percent, short_number
from trimtab.report.series import Series

LabWord = Literal["healthy", "stable so far", "flat", "degraded", "collapsed", "starved", "failed", "unknown"]

BEHIND = 0.1
"""How far under the control of the same seed, beyond the noise of the evaluation, a run may stand."""
LONG = 0.5
"""Share of the steps with next to nothing kept from which a run counts as starved."""
ORDER: tuple[LabWord, ...] = (
    *("healthy", "stable so far", "flat", "degraded", "starved", "collapsed", "failed", "unknown"),
)
FORMER = {"not collapsed yet": "stable so far"}
"""Words that a lab.json of before may hold."""


@dataclass(frozen=True)
class CellVerdict:
    """The word, the sentence that says why, and the numbers it rests on."""

    word: LabWord
    reason: str
    start: float
    best: float
    last: float
    late_low: float
    """The lowest evaluation of the last third."""
    fell: tuple[int, int] | None = None
    """The last evaluation before a fall and the first that showed it."""


def starved_share(kept: Series) -> float:
    """The share of the steps that kept next to nothing."""
    return len(starved_steps(kept)) / max(len(kept.finite), 1)


def cell_verdict(accuracy: Series, starved: float, *, control: Series | None, problems: int, steps: int) -> CellVerdict:
    """The verdict on a cell of `steps` steps, against the control of its seed where that is known; `starved` as `starved_share`.

    collapsed: ends under half of its own best, or under its start. starved: kept less than 5 % in more than half of the steps.
    degraded: last or late-lowest more than 0.1 under the control's, or fell under half of its best late and came back.
    flat: a control that never left its start. healthy: none of these after 400 steps; after fewer, stable so far. Each beyond three
    standard errors.
    """
    own = own_verdict(accuracy, problems=problems)
    if own.word == "unknown":
        nan = float("nan")
        return CellVerdict("unknown", "fewer than two evaluations", nan, nan, nan, nan)
    start, best, last = own.start[1], own.best[1], own.end[1]
    low = float(late_part(accuracy.finite).values.min())
    word, reason = _word(accuracy, starved, control, problems, steps)
    return CellVerdict(word, reason, start, best, last, low, own.fall)


def _word(accuracy: Series, starved: float, control: Series | None, problems: int, steps: int) -> tuple[LabWord, str]:
    own = own_verdict(accuracy, problems=problems)
    start, best, last = own.start[1], own.best[1], own.end[1]
    if own.word == "collapsed":
        return (
            "collapsed",
            f"ends at {short_number(last)}, under half of its best ({short_number(best)} at step {own.best[0]})",
        )
    if start - last > tolerance(start, last, problems):
        return "collapsed", f"ends at {short_number(last)}, under its start ({short_number(start)})"
    if starved > LONG:
        return (
            "starved",
            f"kept under {percent(STARVED)} at {percent(starved)} of the steps: it survives by not learning",
        )
    if own.word == "recovered" and own.low is not None:
        return (
            "degraded",
            f"fell to {short_number(own.low[1])} at step {own.low[0]} and came back to {short_number(last)}",
        )
    behind = _behind(accuracy, control, problems)
    if behind is not None:
        return "degraded", f"{behind}{_since(accuracy.finite, problems) if own.word != 'flat' else ''}"
    if control is None and own.word == "flat":
        return (
            "flat",
            f"never left its start ({short_number(start)}): best {short_number(best)}, ends at {short_number(last)}",
        )
    if control is None and own.word == "degraded":
        return "degraded", f"ends at {short_number(last)}, best {short_number(best)}, start {short_number(start)}"
    if steps < FULL:
        return (
            "stable so far",
            f"ends at {short_number(last)}; only {FULL} steps show whether it stays there, this run has {steps}",
        )
    return "healthy", f"ends at {short_number(last)}, never far under the control"


def _behind(accuracy: Series, control: Series | None, problems: int) -> str | None:
    """How the run stands clearly under its control, if it does."""
    if control is None or len(control.finite) < 2:
        return None
    mine, theirs = late_part(accuracy.finite).values, late_part(control.finite).values
    pairs = (("ends at", mine[-1], theirs[-1]), ("late lowest", mine.min(), theirs.min()))
    for what, one, other in pairs:
        if other - one > BEHIND + tolerance(float(one), float(other), problems):
            return f"{what} {short_number(float(one))}, control {short_number(float(other))}"
    return None


def _since(accuracy: Series, problems: int) -> str:
    """What a run did that ends about as high as it ever was: fell in the last third and came back, or rose to the end."""
    best, last, late = float(accuracy.values.max()), float(accuracy.values[-1]), late_part(accuracy)
    if best - last > tolerance(best, last, problems):
        return ""
    lowest = int(late.values.argmin())
    low, step = float(late.values[lowest]), int(late.steps[lowest])
    before = float(accuracy.within(0, step).values.max())
    if before - low > tolerance(before, low, problems):
        return f"; it had {short_number(before)} before, and came back to {short_number(last)}"
    return "; at its best when it ends, so perhaps only slower"


def tally(words: list[LabWord]) -> str:
    """The words of several seeds, the worst first: `2 collapsed, 1 degraded`."""
    counted = [(word, words.count(word)) for word in reversed(ORDER) if word in words]
    return ", ".join(f"{count} {word}" for word, count in counted)
