"""Charts drawn: SVG, keys, and what the page's script reads under the pointer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.report.draw.bars import BarChart, bars_svg
from trimtab.report.draw.chart import Chart, ChartLine, Mark, chart_svg
from trimtab.report.draw.paper import with_paper
from trimtab.report.text import escape_html, short_number


@dataclass(frozen=True)
class DrawnChart:
    """One chart, drawn."""

    id: str
    title: str
    note: str
    svg: str
    """With its title and keys, hidden on a page."""
    keys: tuple[tuple[int, str, str], ...]
    """Colour, label and last value of each line."""
    readable: dict[str, Any] | None = None
    """What the pointer can read; None for bars."""


def draw_chart(chart: Chart | BarChart, span: tuple[int, int], marks: Sequence[Mark] = ()) -> DrawnChart:
    """A chart over these steps."""
    if isinstance(chart, BarChart):
        keys = tuple((bar.colour, bar.label, "") for bar in chart.bars)
        svg, readable = bars_svg(chart), None
    else:
        keys = tuple((line.colour, line.label, _last(line)) for line in chart.lines if len(line.series.finite))
        svg, readable = chart_svg(chart, span, marks)
    whole = with_paper(svg, chart.title, [(colour, label) for colour, label, _ in keys])
    return DrawnChart(chart.id, chart.title, chart.note, whole, keys, readable)


def _last(line: ChartLine) -> str:
    last = short_number(float(line.series.finite.values[-1]))
    if line.upper is not None and len(line.upper.finite):
        last += f" to {short_number(float(line.upper.finite.values[-1]))}"
    return last


def figures_html(charts: Iterable[DrawnChart], data: list[dict[str, Any]]) -> str:
    """Their HTML; what the pointer reads goes to `data`."""
    parts: list[str] = []
    for each in charts:
        keys = "".join(
            f'<span><i class="s{colour}"></i>{escape_html(label)}{f"<var>{escape_html(last)}</var>" if last else ""}</span>'
            for colour, label, last in each.keys
        )
        parts.append(
            figure_html(each.id, each.title, each.note, keys, each.svg, None if each.readable is None else len(data))
        )
        data += [] if each.readable is None else [each.readable]
    return "".join(parts)


def figure_html(name: str, title: str, note: str, keys: str, svg: str, place: int | None = None) -> str:
    """A chart with its words, an SVG that carries its own (`with_paper`); `place` is that of its values in the script's data."""
    read = "" if place is None else f' data-c="{place}"'
    return (
        f'<figure id="{escape_html(name)}"{read}><figcaption><span class="save"><button type="button" data-save="svg" '
        'title="Save this chart as SVG">SVG</button> <button type="button" data-save="png" title="Save this chart as PNG">PNG</button>'
        f'</span><b>{escape_html(title)}</b> <span class="step"></span></figcaption>'
        f'<p class="how">{escape_html(note)}</p>{svg}<div class="keys">{keys}</div></figure>'
    )
