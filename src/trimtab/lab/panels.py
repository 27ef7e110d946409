"""The charts of a scenario: one colour per correction, one thin line per seed, the control beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.config.kept_shares import STARVED
from trimtab.lab.results import CellResult, LabResults
from trimtab.lab.scenario import CONTROL
from trimtab.lab.table import CorrectionRow, correction_rows
from trimtab.lab.verdict import tally
from trimtab.report.draw.axis import FREE, LOG, SHARE, Scale
from trimtab.report.draw.chart import Bound, Chart, ChartLine
from trimtab.report.draw.palette import FIRST_COLOUR
from trimtab.report.metrics import METRICS
from trimtab.report.series import Series

CONTROL_COLOUR = 6
"""The grey of the palette."""


@dataclass(frozen=True)
class LabPanel:
    """One metric over the steps."""

    name: str
    title: str
    note: str
    scale: Scale = FREE
    bound: Bound | None = None

    def series(self, entry: CellResult) -> Series:
        """What it shows of a cell."""
        if self.name == "accuracy":
            return entry.evaluated
        found = entry.curves.get(self.name)
        return Series.of(()) if found is None else found.series()

    def chart(self, results: LabResults, scenario: str) -> Chart:
        """The panel with every cell of a scenario."""
        colours = colours_of(results)
        lines = [
            ChartLine(line_label(each), self.series(each), colours[each.correction], faint=True)
            for each in results.of(scenario)
        ]
        controls = [] if scenario == CONTROL else results.controls
        lines += [ChartLine(f"control, seed {each.seed}", self.series(each), CONTROL_COLOUR) for each in controls]
        bounds = () if self.bound is None else (self.bound,)
        identity = f"{scenario}-{self.name}"
        return Chart(identity, self.title, self.note, lines, self.scale, bounds)


PANELS = (
    LabPanel(
        "accuracy", METRICS["eval/accuracy"].title, "By the learner's own weights, in full precision.", scale=SHARE
    ),
    LabPanel(
        "mismatch",
        METRICS["drift/k3"].name,
        "k3 between behavior and proximal; the greatest of each few steps. Of all curves its level says most of a fall to come.",
        scale=LOG,
    ),
    LabPanel(
        "approx_kl",
        "Step KL",
        "k3 between the loss's anchor and current while training; the greatest of each few steps. Alone it misses most collapses.",
        scale=LOG,
    ),
    LabPanel("grad_norm", METRICS["train/grad_norm"].name, "The greatest of each few steps.", scale=LOG),
    LabPanel("kept", "Kept", "Share of the tokens that the gates leave.", scale=SHARE, bound=Bound(STARVED, "starved")),
    LabPanel(
        "net_advantage",
        "Net advantage of what is kept",
        "Mean advantage of the tokens that train. Far under 0 they are only pushed down; about 0 by construction with baseline kept.",
        bound=Bound(0.0, "balanced"),
    ),
    LabPanel("kept_right", "Kept of right answers", "Share of their tokens that train.", scale=SHARE),
    LabPanel(
        "kept_wrong",
        "Kept of wrong answers",
        "Share of their tokens that train. More than of right answers: it prefers mistakes.",
        scale=SHARE,
    ),
    LabPanel("ess", METRICS["weight/ess"].title, "Share of the batch that the weights leave.", scale=SHARE),
    LabPanel(
        "entropy", METRICS["policy/entropy"].title, "Of the policy at the start of the step, per token.", scale=LOG
    ),
)


def line_label(entry: CellResult) -> str:
    """How a line is called."""
    return f"{entry.correction}, seed {entry.seed}"


def colours_of(results: LabResults) -> dict[str, int]:
    """A colour for each correction, the same in every scenario."""
    names = dict.fromkeys(each.correction for each in results.entries)
    return {name: FIRST_COLOUR + place for place, name in enumerate(names)}


def small_multiples(results: LabResults, scenario: str) -> list[Chart]:
    """Accuracy once per correction, every seed a line over the controls; in the order of the table."""
    return [_small(results, scenario, row) for row in correction_rows(results, scenario)]


def _small(results: LabResults, scenario: str, row: CorrectionRow) -> Chart:
    controls: Sequence[CellResult] = [] if list(row.cells) == results.controls else results.controls
    lines = [ChartLine(f"control, seed {each.seed}", each.evaluated, CONTROL_COLOUR, faint=True) for each in controls]
    lines += [ChartLine(f"seed {each.seed}", each.evaluated, 1 + place) for place, each in enumerate(row.cells)]
    return Chart(f"{scenario}-{row.correction}", row.correction, tally(row.words), lines, scale=SHARE)
