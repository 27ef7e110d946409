"""The charts of a scenario: one colour per correction, one thin line per seed, the control beside them.

Accuracy by correction is drawn as one SVG file too that needs no style sheet, for pages that can only show pictures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.config.kept_shares import STARVED
from trimtab.lab.results import CellResult, LabResults
from trimtab.lab.scenario import CONTROL
from trimtab.lab.table import CorrectionRow, correction_rows
from trimtab.lab.verdict import tally
from trimtab.report.draw.axis import FREE, LOG, SHARE, Scale
from trimtab.report.draw.chart import HEIGHT, WIDTH, Bound, Chart, ChartLine, chart_svg
from trimtab.report.draw.palette import FIRST_COLOUR
from trimtab.report.html import escape_html
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
        curve = entry.curves.get(self.name)
        return Series.of(()) if curve is None else curve.series()

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


COLUMNS = 4
_HEAD, _GAP = 44, 14
_STYLE = (
    "svg{font:11px system-ui,'DejaVu Sans',sans-serif}text{fill:#5c6570}text.y{text-anchor:end}text.x{text-anchor:middle}"
    "text.title{font-size:17px;font-weight:600;fill:#1c2128}text.word{font-size:15px}"
    ".grid{stroke:#e3e6ea}.axis{stroke:#8d99a6}.line{fill:none;stroke-width:2.4;stroke-linejoin:round;stroke-linecap:round}"
    ".line.faint{stroke-width:1.2;opacity:.8}.s1{stroke:#1f6fb4}.s2{stroke:#d1571b}.s3{stroke:#2a8a57}.s4{stroke:#8a5cc2}"
    ".s5{stroke:#b8892b}.s6{stroke:#8d99a6}"
)


LINES = ("blue", "orange", "green", "violet", "gold")
"""What the style calls s1 to s5: the first seed, the second, …"""


def accuracy_figure(results: LabResults, scenario: str) -> str:
    """Every correction of a scenario in a panel of its own: each seed a line, the controls grey behind them."""
    charts = small_multiples(results, scenario)
    down = -(-len(charts) // COLUMNS)
    width, height = COLUMNS * (WIDTH + _GAP), down * (HEIGHT + _HEAD + _GAP)
    panels = "".join(_panel(chart, place, results.steps) for place, chart in enumerate(charts))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape_html(f"Held-out accuracy by correction, {scenario}")}"><style>{_STYLE}</style>'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{panels}</svg>\n'
    )


def _panel(chart: Chart, place: int, steps: int) -> str:
    x, y = (place % COLUMNS) * (WIDTH + _GAP), (place // COLUMNS) * (HEIGHT + _HEAD + _GAP)
    svg, _ = chart_svg(chart, (0, steps))
    inner = svg.replace("<svg ", f'<svg y="{_HEAD}" width="{WIDTH}" height="{HEIGHT}" ', 1)
    return (
        f'<g transform="translate({x} {y})"><text class="title" x="12" y="20">{escape_html(chart.title)}</text>'
        f'<text class="word" x="12" y="38">{escape_html(chart.note)}</text>{inner}</g>'
    )


def figure_name(scenario: str) -> str:
    """The file of a scenario's figure, in the folder it is put into whatever the scenario is called."""
    plain = re.sub(r"[^\w.-]+", "-", scenario)
    return f"lab-{plain}.svg"


def scenario_figures(results: LabResults, scenarios: Sequence[str]) -> dict[str, str]:
    """File name and SVG of each scenario."""
    return {figure_name(name): accuracy_figure(results, name) for name in scenarios if results.of(name)}
