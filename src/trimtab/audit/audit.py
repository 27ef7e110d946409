"""An audit: the gap of a saved batch, its causes, what each rule would do, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from trimtab.audit.advice import AuditAdvice, advise
from trimtab.audit.gap import Gap, gap_of
from trimtab.audit.ladder import CausedStep, climb
from trimtab.audit.rungs.sampling import DrawnTemperature
from trimtab.audit.whatif import WhatIf, what_if
from trimtab.dialects.candidate import Candidate
from trimtab.records.saved import SavedBatch


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found in a batch."""

    batch: SavedBatch
    gap: Gap
    steps: tuple[CausedStep, ...]
    rules: WhatIf
    advice: AuditAdvice

    def with_verdict(self, verdict: str) -> list[CausedStep]:
        """The causes with this verdict, in order."""
        return [step for step in self.steps if step.verdict == verdict]

    @property
    def unexplained(self) -> float:
        """Share of the gap that no cause found explains."""
        return max(0.0, 1 - sum(step.share or 0.0 for step in self.with_verdict("found"))) if self.gap.is_open else 0.0


def audit_batch(
    batch: SavedBatch,
    rules: Sequence[Candidate] = (),
    second: NDArray[Any] | None = None,
    drawn: DrawnTemperature | None = None,
) -> Audit:
    """Judge a batch; `second` is a second scoring of its tokens by the same weights, `drawn` what a model says of the temperature."""
    gap = gap_of(batch, second)
    steps = tuple(climb(batch, second, drawn))
    found = what_if(batch, rules)
    return Audit(batch, gap, steps, found, advise(gap, steps, found))
