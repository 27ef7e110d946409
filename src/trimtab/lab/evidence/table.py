"""Verdicts on claims as text: a row each, and what stands beside it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from trimtab.lab.evidence.claim import Arm, Claim
from trimtab.lab.evidence.finding import ClaimFinding
from trimtab.lab.statistics.decision import LEVEL, LOOKS
from trimtab.lab.statistics.interval import Interval
from trimtab.lab.table import in_code, in_prose, markdown_table
from trimtab.report.html import percent, short_number, with_decimals

CLAIM_HEAD = (
    "claim",
    "verdict",
    f"difference, {percent(LEVEL)} interval",
    "seeds",
    "survived, first / second",
    "would decide",
)
METHOD = (
    f"First arm less second, seed by seed. The interval is the BCa bootstrap's at {percent(LEVEL)}; a verdict needs it and the exact "
    f"sign-flip test to agree. The data are looked at with {', '.join(map(str, LOOKS[:-1]))} and {LOOKS[-1]} seeds and at no other "
    "time: with five looks at 99 % at most 5 % of the verdicts on one claim are wrong. Claims are not corrected for each other."
)


def claim_texts(finding: ClaimFinding) -> tuple[str, ...]:
    """A row, under `CLAIM_HEAD`."""
    decision = finding.decision
    return (
        finding.claim.id,
        outcome_text(finding),
        interval_text(decision.difference) if decision.seeds else "–",
        str(decision.seeds) if decision.seeds else "–",
        survival_text(finding),
        needed_text(finding),
    )


def outcome_text(finding: ClaimFinding) -> str:
    """The verdict; a claim without a pair is not run."""
    return finding.decision.outcome if finding.decision.seeds else "not run"


def interval_text(interval: Interval) -> str:
    """+0.51 [+0.32, +0.66]."""
    if not math.isfinite(interval.lower):
        return signed(interval.estimate)
    return f"{signed(interval.estimate)} [{signed(interval.lower)}, {signed(interval.upper)}]"


def signed(value: float) -> str:
    """A difference with its sign and two decimals."""
    text = with_decimals(abs(value))
    return text if float(text) == 0 else f"{'+' if value > 0 else '−'}{text}"


def survival_text(finding: ClaimFinding) -> str:
    """The share of each arm that never fell."""
    ends = [points[-1] for points in finding.survival if points]
    return " / ".join(percent(each.share) for each in ends) or "–"


def needed_text(finding: ClaimFinding) -> str:
    """How many seeds would decide it, or why none would."""
    decision = finding.decision
    if decision.outcome != "not decided":
        return ""
    if finding.obstacle is not None or decision.seeds < LOOKS[0]:
        return decision.reason
    return "more than 10,000 seeds" if decision.needed is None else f"about {decision.needed:,} seeds"


def arm_text(arm: Arm) -> str:
    """An arm for a reader: the correction and its scenario."""
    return f"{arm.label} ({arm.scenario})"


def claim_sentence(claim: Claim) -> str:
    """What is compared, in words: `k3-rs (stale) higher than off (stale) in late accuracy`."""
    than = {"higher": "higher than", "lower": "lower than", "same": "the same as"}[claim.expected]
    within = f", within {short_number(claim.margin)}" if claim.expected == "same" else ""
    return f"{arm_text(claim.first)} {than} {arm_text(claim.second)} in {claim.measure}{within}; task {claim.task}"


def rerun_command(claim: Claim) -> str:
    """One command that runs this claim and no other."""
    return f"trimtab lab --decide --claim {shlex.quote(claim.id)}"


def beside(finding: ClaimFinding) -> list[str]:
    """What must stand beside a verdict: why, what the pairs share, faults, and notes on the harness."""
    return [
        f"{finding.decision.outcome}: {finding.decision.reason}",
        f"paired: {finding.pairs.shares}",
        *finding.pairs.faults,
        *finding.notes,
    ]


def claims_markdown(findings: Sequence[ClaimFinding], about: str) -> str:
    """The decided claims first, then the open ones; each with its command."""
    ran = [each for each in findings if each.decision.seeds]
    lines = [[in_code(name), *rest] for name, *rest in map(claim_texts, ordered_findings(findings))]
    parts = [f"{in_prose(about)}\n", f"{in_prose(METHOD)}\n", markdown_table(CLAIM_HEAD, lines)]
    for each in ordered_findings(ran):
        parts.append(
            f"### {in_code(each.claim.id)}: {each.decision.outcome}\n\n{in_prose(each.claim.text)} "
            f"*{in_prose(each.claim.source)}*\n\n{in_prose(claim_sentence(each.claim))}: "
            f"{interval_text(each.decision.difference)}. Run it: {in_code(rerun_command(each.claim))}.\n"
        )
        parts.append("".join(f"- {in_prose(line)}\n" for line in beside(each)))
    return "\n".join(parts)


def ordered_findings(findings: Sequence[ClaimFinding]) -> list[ClaimFinding]:
    """Decided before open, with data before without; else as they stand."""
    return sorted(findings, key=lambda each: (each.decision.outcome == "not decided", not each.decision.seeds))
