"""What a run's own numbers say, in sentences: a table of small functions, each from a run to its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trimtab.report.findings import filtering, learning, mismatch, pace, supply
from trimtab.report.findings.advice import with_advice
from trimtab.report.findings.finding import LEVELS, RunFinding
from trimtab.report.run import Run

KINDS: tuple[Callable[[Run], Iterator[RunFinding]], ...] = (
    learning.verdict_finding,
    filtering.starvation,
    learning.early_sign,
    learning.early_signs,
    filtering.selection_bias,
    filtering.distance,
    filtering.gates,
    filtering.effective_size,
    filtering.missing_log_probs,
    supply.gradients,
    mismatch.cut_samples,
    mismatch.origin,
    pace.staleness_at_bound,
    pace.missing_versions,
    supply.responses,
    supply.silent_groups,
    pace.waiting,
    supply.ending,
)


def findings_of(run: Run) -> list[RunFinding]:
    """Everything worth saying: the verdict first, then by gravity."""
    first, *rest = (with_advice(run, finding) for kind in KINDS for finding in kind(run))
    rest.sort(key=lambda finding: LEVELS.index(finding.level))
    if len(run.metrics) > 1 and not any(finding.level in ("alarm", "warning") for finding in (first, *rest)):
        sentence = "Gates, selection, staleness, gradients and mismatch show nothing out of the ordinary."
        rest.append(RunFinding("good", "No warning sign", sentence))
    return [first, *rest]


def gravest(findings: list[RunFinding]) -> RunFinding:
    """The most important of a run's findings: the gravest alarm or warning, or else the verdict."""
    return min(findings, key=lambda one: LEVELS.index(one.level) if one.level in ("alarm", "warning") else len(LEVELS))
