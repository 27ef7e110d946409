"""An audit: the gap of a saved batch, its causes, what each rule would do, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from trimtab.audit.causes.sampling import DrawnTemperature
from trimtab.audit.diagnose import Diagnosis, diagnose
from trimtab.audit.gap import Gap, gap_of
from trimtab.audit.whatif import RuleOutcome, WhatIf, what_if
from trimtab.dialects.candidate import Candidate
from trimtab.records.saved import SavedBatch

SMALL_K3 = 1e-3
"""Mean k3 up to which nothing needs correcting: bf16 gives 1e-5 on a small model and 5e-4 on a large one."""
PROPOSED_RULES = ("geo-rs+token-tis", "k3-rs", "icepop", "token-mis", "token-tis")
"""Rules to propose, strictest first."""


@dataclass(frozen=True)
class AuditAdvice:
    """A recommendation with its reasons."""

    title: str
    reasons: tuple[str, ...]
    rule: str | None = None


@dataclass(frozen=True, eq=False)
class Audit:
    """A batch with its gap, the verdict on each cause, what each rule would do, and the advice."""

    batch: SavedBatch
    gap: Gap
    steps: tuple[Diagnosis, ...]
    rules: WhatIf
    advice: AuditAdvice

    def with_verdict(self, verdict: str) -> list[Diagnosis]:
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
    """Judge a batch; `second` is a second scoring of its tokens by the same weights, `drawn` the temperatures that a model finds."""
    gap = gap_of(batch, second)
    steps = tuple(diagnose(batch, second, drawn))
    found = what_if(batch, rules)
    return Audit(batch, gap, steps, found, advise(gap, steps, found))


def advise(gap: Gap, steps: Sequence[Diagnosis], found: WhatIf) -> AuditAdvice:
    """The recommendation for this batch."""
    bugs = [step for step in steps if step.verdict == "found" and step.cause.is_bug]
    if bugs:
        first = bugs[0]
        return AuditAdvice(
            f"Fix first: {first.cause.title.lower()}",
            (first.remedy, "A correction would hide the bug and throw away tokens worth training on."),
        )
    if gap.k3 < SMALL_K3:
        return AuditAdvice(
            "No correction needed", (f"Mean k3 is {gap.k3:.2g}; 16-bit noise stays under {SMALL_K3:g}.",)
        )
    by_name = {each.label.removeprefix("bypass-"): each for each in found.outcomes}
    for name in PROPOSED_RULES:
        each = by_name.get(name)
        if each is not None and not _faults(each):
            return AuditAdvice(f"Correct with {each.label}", tuple(_reasons(gap, each, by_name)), each.label)
    reasons = [f"{each.label}: {', '.join(_faults(each))}." for name in PROPOSED_RULES if (each := by_name.get(name))]
    return AuditAdvice("No rule fits this batch", (*reasons, "Lower the staleness or raise the precision first."))


def _faults(each: RuleOutcome) -> list[str]:
    """What speaks against a rule on this batch."""
    faults: list[str] = []
    if each.kept < 0.8:
        faults.append(f"keeps only {each.kept:.0%}")
    if each.ess < 0.5:
        faults.append(f"has an effective sample size of {each.ess:.0%}")
    if not 0.5 <= each.step <= 2.0:
        faults.append(f"scales the step by {each.step:.2g}")
    if each.long < 0.8 * each.short:
        faults.append(f"keeps {each.long:.0%} of long answers and {each.short:.0%} of short ones")
    if each.right is not None and each.wrong is not None and each.right < each.wrong - 0.1:
        faults.append("keeps wrong answers more often than right ones")
    return faults


def _reasons(gap: Gap, each: RuleOutcome, others: dict[str, RuleOutcome]) -> list[str]:
    reasons = [
        f"Mean k3 is {gap.k3:.2g}; 16-bit noise stays under {SMALL_K3:g}.",
        f"It keeps {each.kept:.1%} of the tokens, {each.long:.1%} of those in long answers, and {each.step:.0%} of the step size.",
    ]
    for name in ("seq-tis", "seq-mis"):
        if (other := others.get(name)) is not None and _faults(other):
            reasons.append(f"{other.label} does not fit: {', '.join(_faults(other))}.")
    return reasons
