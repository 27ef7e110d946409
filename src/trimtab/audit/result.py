"""What a rung says: a verdict, with the number it stands on and what that number should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab.audit.gap import Gap

CauseVerdict = Literal["ruled out", "suspected", "found", "cannot be told"]


@dataclass(frozen=True, eq=False, kw_only=True)
class RungResult:
    """One cause, judged."""

    verdict: CauseVerdict
    statistic: str
    """What was measured, as a sentence."""
    share: float | None = None
    """Of the gap that came to this rung, what the cause explains."""
    lacks: str = ""
    """The data that would decide, where it cannot be told."""
    remedy: str = ""
    """What to do about it, where it depends on what was seen; else the rung's own."""
    rest: Gap | None = None
    """The gap without this cause; None: as it was."""


NOTHING = RungResult(verdict="ruled out", statistic="There is no gap left to explain.")


def cannot_tell(data: str, statistic: str = "") -> RungResult:
    """Cannot be told for want of this."""
    return RungResult(
        verdict="cannot be told", statistic=statistic or "The batch does not have what it takes.", lacks=data
    )


BLURRED = RungResult(
    verdict="cannot be told",
    statistic="A cause above was found and could only be taken off in part.",
    lacks="a batch in which the causes above are mended",
)
