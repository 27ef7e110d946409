"""The charts of a report under their headings, drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trimtab.report.charts.classes import class_charts, time_chart
from trimtab.report.charts.panels import SECTIONS, gate_charts
from trimtab.report.charts.whatif import whatif_charts
from trimtab.report.draw.bars import BarChart
from trimtab.report.draw.chart import Chart, Mark
from trimtab.report.draw.figure import DrawnChart, draw_chart
from trimtab.report.findings.learning import with_start
from trimtab.report.run import Run
from trimtab.report.tokens import Tokens


@dataclass(frozen=True)
class ChartSection:
    """Charts under one heading."""

    title: str
    charts: Sequence[DrawnChart]
    absent: Sequence[str]
    """Titles of charts whose metrics the run does not have."""


def chart_sections(run: Run, found: Tokens | None, marks: Sequence[Mark] = ()) -> Iterator[ChartSection]:
    """Every chart of the run, drawn."""
    extra: dict[str, Sequence[Chart | BarChart]] = {
        "policies": list(class_charts(run, found)),
        "correction": [*gate_charts(run), *whatif_charts(run, found)],
    }
    span = chart_span(run)
    for name, title, panels in SECTIONS:
        time = time_chart(run) if name == "machine" else None
        charts = [*([time] if time else []), *(panel.chart(run) for panel in panels), *extra.get(name, ())]
        shown = [
            draw_chart(chart, span, marks) for chart in charts if isinstance(chart, BarChart) or not chart.is_empty
        ]
        yield ChartSection(
            title, shown, [chart.title for chart in charts if isinstance(chart, Chart) and chart.is_empty]
        )


def chart_span(run: Run) -> tuple[int, int]:
    """The steps that charts share: from before the first one, where that was evaluated."""
    first, last = run.span
    start = with_start(run).steps
    return (min(first, int(start[0])) if len(start) else first), last
