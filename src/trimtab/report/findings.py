"""What a run's own numbers say, in sentences: a table of small functions, each from a run to its findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from trimtab.report import filtering, learning, supply
from trimtab.report.finding import LEVELS, Finding
from trimtab.report.run import Run

KINDS: tuple[Callable[[Run], Iterator[Finding]], ...] = (
    learning.verdict_finding,
    filtering.starvation,
    learning.early_sign,
    filtering.selection_bias,
    filtering.distance,
    filtering.gates,
    filtering.effective_size,
    filtering.missing,
    supply.gradients,
    supply.cause,
    supply.staleness,
    supply.responses,
    supply.silent_groups,
    supply.waiting,
    supply.ending,
)


def findings(run: Run) -> list[Finding]:
    """Everything worth saying: the verdict first, then by gravity."""
    first, *rest = (found for kind in KINDS for found in kind(run))
    rest.sort(key=lambda found: LEVELS.index(found.level))
    if len(run.metrics) > 1 and not any(found.level in ("alarm", "warning") for found in (first, *rest)):
        sentence = "Gates, selection, staleness, gradients and mismatch show nothing out of the ordinary."
        rest.append(Finding("good", "No warning sign", sentence))
    return [first, *rest]


def word(run: Run) -> str:
    """The run in one word: that of its accuracy, or starved where the gates left next to nothing."""
    found, _ = learning.run_verdict(run)
    if found.word != "collapsed" and filtering.is_starved(run.series("kept_fraction")):
        return "starved"
    return found.word
