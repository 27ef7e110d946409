"""What to do about a batch: mend a bug first, correct what is really off-policy, leave the rest alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.audit.gap import Gap
from trimtab.audit.ladder import CausedStep
from trimtab.audit.whatif import RuleOutcome, WhatIf

SMALL = 1e-3
"""Mean k3 up to which nothing needs correcting: bf16 gives 1e-5 on a small model and 5e-4 on a large one."""
OFFERS = ("geo-rs+token-tis", "k3-rs", "icepop", "token-mis", "token-tis")
"""Rules to propose, strictest first."""


@dataclass(frozen=True)
class AuditAdvice:
    """A recommendation with its reasons."""

    title: str
    reasons: tuple[str, ...]
    rule: str | None = None


def advise(gap: Gap, steps: Sequence[CausedStep], found: WhatIf) -> AuditAdvice:
    """The recommendation for this batch."""
    bugs = [step for step in steps if step.verdict == "found" and step.rung.is_bug]
    if bugs:
        first = bugs[0]
        return AuditAdvice(
            f"Mend first: {first.rung.title.lower()}",
            (first.remedy, "A correction would hide it, and throw away what it should have learned from."),
        )
    if gap.k3 < SMALL:
        return AuditAdvice("None needed", (f"Mean k3 is {gap.k3:.2g}, under {SMALL:g}, as noise of 16 bits is.",))
    by_name = {each.label.removeprefix("bypass-"): each for each in found.outcomes}
    for name in OFFERS:
        each = by_name.get(name)
        if each is not None and not _faults(each):
            return AuditAdvice(f"Correct with {each.label}", tuple(_reasons(gap, each, by_name)), each.label)
    reasons = [f"{each.label}: {', '.join(_faults(each))}." for name in OFFERS if (each := by_name.get(name))]
    return AuditAdvice(
        "No rule fits this batch as it stands", (*reasons, "Lower the staleness or raise the precision first.")
    )


def _faults(each: RuleOutcome) -> list[str]:
    """What speaks against a rule on this batch."""
    said: list[str] = []
    if each.kept < 0.8:
        said.append(f"keeps only {each.kept:.0%}")
    if each.ess < 0.5:
        said.append(f"an effective sample of {each.ess:.0%}")
    if not 0.5 <= each.step <= 2.0:
        said.append(f"a step of {each.step:.2g} times its size")
    if each.long < 0.8 * each.short:
        said.append(f"keeps {each.long:.0%} of long answers and {each.short:.0%} of short ones")
    if each.right is not None and each.wrong is not None and each.right < each.wrong - 0.1:
        said.append("keeps wrong answers more often than right ones")
    return said


def _reasons(gap: Gap, each: RuleOutcome, others: dict[str, RuleOutcome]) -> list[str]:
    said = [
        f"Mean k3 is {gap.k3:.2g}; noise of 16 bits stays under {SMALL:g}.",
        f"It keeps {each.kept:.1%} of the tokens, {each.long:.1%} of those of long answers, and leaves {each.step:.2f} of the step.",
    ]
    for name in ("seq-tis", "seq-mis"):
        if (other := others.get(name)) is not None and _faults(other):
            said.append(f"{other.label} would not do: {', '.join(_faults(other))}.")
    return said
