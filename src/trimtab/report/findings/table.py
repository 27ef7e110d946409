"""What a run's own numbers say, in sentences: a table of small functions, each from a run to its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from trimtab.report.findings import filtering, learning, mismatch, pace, supply
from trimtab.report.findings.advice import with_advice
from trimtab.report.findings.finding import LEVELS, RunFinding
from trimtab.report.run import Run

KINDS: tuple[Callable[[Run], Iterator[RunFinding]], ...] = (
    learning.verdict_finding,
    learning.curve_dips,
    learning.reward_against_accuracy,
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
    if len(run.metrics) > 1:
        rest += _all_clear(run, first, rest)
    return [first, *rest]


def _all_clear(run: Run, first: RunFinding, rest: Sequence[RunFinding]) -> Iterator[RunFinding]:
    """That nothing was found where it was looked for: only if no warning and no note speaks of trouble."""
    panels = {(each.panel or "").partition("/")[0] for each in rest}
    if TROUBLED & panels or any(each.level in ("alarm", "warning") for each in (first, *rest)):
        return
    clear = [name for name, (metric, chart) in LOOKED_AT.items() if _has(run, metric) and chart not in panels]
    if clear:
        *others, last = clear
        where = f"{', '.join(others)}{' and ' if others else ''}{last}"
        yield RunFinding("good", "No warning sign", f"Nothing out of the ordinary in {where}.")


LOOKED_AT: Mapping[str, tuple[str, str]] = {
    "mismatch": ("drift/k3", "by-age"),
    "gates": ("kept_fraction", "kept"),
    "selection": ("selection/kept_given_positive", "selection"),
    "staleness": ("staleness/oldest_max", "staleness"),
    "gradients": ("train/grad_norm", "gradient"),
}
"""What a run is searched for: the metric without which it cannot be, and the chart of a note that says more of it."""
TROUBLED = {"mismatch", "kept", "selection", "gradient", "ess", "gate", "finish", "accuracy", "reward"}
"""Charts of notes on something out of the ordinary, if only for a while."""


def _has(run: Run, metric: str) -> bool:
    return len(run.series(metric).finite) > 0


def gravest(findings: list[RunFinding]) -> RunFinding:
    """The most important of a run's findings: the gravest alarm or warning, or else the verdict."""
    return min(findings, key=lambda one: LEVELS.index(one.level) if one.level in ("alarm", "warning") else len(LEVELS))
