"""Accuracy by correction as one SVG file that needs no style sheet, for pages that can only show pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimtab.lab.panels import small_multiples
from trimtab.lab.results import LabResults
from trimtab.report.draw.chart import HEIGHT, WIDTH, Chart, chart_svg
from trimtab.report.html import escape_html

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
