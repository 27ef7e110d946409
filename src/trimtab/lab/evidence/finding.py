"""What a lab's cells say of a claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from trimtab.lab.evidence.claim import Arm, Claim, Measure
from trimtab.lab.evidence.harness import harness_notes
from trimtab.lab.evidence.outcome import kept_share, late_accuracy, lifetime, stood
from trimtab.lab.evidence.pairs import PairedArms, paired_arms
from trimtab.lab.results import CellResult, LabResults
from trimtab.lab.statistics.decision import Decision, claim_decision
from trimtab.lab.statistics.survival import SurvivalPoint, kaplan_meier

MEASURES: dict[Measure, Callable[[CellResult], float]] = {
    "late accuracy": late_accuracy,
    "survival": stood,
    "kept": kept_share,
}


@dataclass(frozen=True)
class ClaimFinding:
    """A claim, the verdict on it, and all that has to stand beside the verdict."""

    claim: Claim
    decision: Decision
    pairs: PairedArms
    notes: tuple[str, ...]
    survival: tuple[tuple[SurvivalPoint, ...], tuple[SurvivalPoint, ...]]
    """Of both arms; empty where there are no pairs."""

    @property
    def is_open(self) -> bool:
        """Whether more seeds could decide it."""
        return self.decision.outcome == "not decided" and self.obstacle is None

    @property
    def obstacle(self) -> str | None:
        """Why more seeds would not decide it: what it needs, a fault of its pairs, or a seed that is lost; None where nothing bars it."""
        if self.claim.needs is not None:
            return f"needs {self.claim.needs}"
        if self.pairs.faults:
            return self.pairs.faults[0]
        return self.pairs.lost if self.decision.outcome == "not decided" else None


def claim_finding(claim: Claim, results: LabResults | None) -> ClaimFinding:
    """The verdict by the cells there are; `results` are those of the claim's task, None where nothing has run."""
    first, second = (arm_cells(results, arm) for arm in (claim.first, claim.second))
    pairs = paired_arms(first, second, claim.shared)
    differences = paired_differences(claim, pairs)
    decision = claim_decision(np.array(differences), claim.expected, claim.margin)
    notes = harness_notes(pairs, results.corrections) if results is not None else []
    found = ClaimFinding(claim, decision, pairs, tuple(notes), (_survival(pairs.one), _survival(pairs.other)))
    if found.obstacle is None:
        return found
    return replace(found, decision=replace(decision, outcome="not decided", reason=found.obstacle, needed=None))


def _survival(arm: Sequence[CellResult]) -> tuple[SurvivalPoint, ...]:
    return tuple(kaplan_meier([lifetime(each) for each in arm])) if arm else ()


def arm_cells(results: LabResults | None, arm: Arm) -> list[CellResult]:
    """The cells of an arm, by seed."""
    return [] if results is None else results.cells(arm.scenario, arm.label)


def paired_differences(claim: Claim, pairs: PairedArms) -> Sequence[float]:
    """First arm less second, in the order of the seeds."""
    measure = MEASURES[claim.measure]
    return [measure(one) - measure(other) for one, other in zip(pairs.one, pairs.other, strict=True)]
