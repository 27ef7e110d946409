"""Charts drawn: SVG, keys, and what the page's script reads under the pointer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from trimtab.report.draw.bars import BarChart, bars_svg
from trimtab.report.draw.chart import HEIGHT, LEFT, WIDTH, Chart, ChartLine, Mark, chart_svg
from trimtab.report.html import escape_html, short_number


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


HEAD, LINE, MARGIN = 30, 16, 8
"""Height of the title and of a line of keys, and the margin around all."""
LETTER = 6.3
"""Width of a letter of the keys, about."""
MOST_KEYS = 40

Keys = Sequence[tuple[int, str]]
"""Colour and label of each line."""


def with_paper(svg: str, title: str, keys: Keys) -> str:
    """The SVG with its title and keys in a group of their own, outside the frame."""
    parts = [f'<text class="title" x="{MARGIN}" y="-10">{escape_html(title)}</text>']
    x, y = float(LEFT), HEIGHT + 12.0
    for colour, label in keys[:MOST_KEYS]:
        wide = 22 + LETTER * len(label)
        if x > LEFT and x + wide > WIDTH:
            x, y = float(LEFT), y + LINE
        parts.append(f'<rect class="s{colour}" x="{x:.0f}" y="{y - 5:.0f}" width="12" height="3"/>')
        parts.append(f'<text x="{x + 17:.0f}" y="{y:.0f}">{escape_html(label)}</text>')
        x += wide + 10
    low = y + MARGIN if keys else float(HEIGHT + MARGIN)
    box = f"{-MARGIN} {-HEAD} {WIDTH + 2 * MARGIN} {low + HEAD:.0f}"
    return svg.removesuffix("</svg>") + f'<g class="paper" data-box="{box}">{"".join(parts)}</g></svg>'


def picture(svg: str, style: str) -> str:
    """A file of its own from an SVG `with_paper`."""
    box = re.search(r'data-box="([^"]*)"', svg)
    assert box is not None
    x, y, width, height = box[1].split()
    inner = svg.partition(">")[2]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box[1]}" width="{width}" height="{height}" role="img">'
        f'<style>{style}</style><rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#ffffff"/>{inner}\n'
    )


def paper_style(further: str = "") -> str:
    """The style of charts with the light colours put in; `further` rules after it."""
    files = resources.files("trimtab.report")
    page, chart = (files.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "chart.css"))
    light = dict(re.findall(r"--([\w-]+): ([^;]+);", page.partition("@media")[0])) | {"card": "#fff"}
    return re.sub(r"var\(--([\w-]+)\)", lambda name: light[name[1]], chart) + further


SPAN, TALL = 220, 26
_EDGE = 8


def interval_svg(estimate: float, lower: float, upper: float, *, ends: tuple[float, float], margin: float) -> str:
    """A dot on a line from `lower` to `upper` over the range `ends`; 0 is a rule, ±`margin` a band around it.

    Bounds outside the range are cut there.
    """
    low, high = ends

    def place(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return _EDGE + share * (SPAN - 2 * _EDGE)

    middle = TALL / 2
    said = f"{short_number(estimate)}, from {short_number(lower)} to {short_number(upper)}"
    return (
        f'<svg class="interval" viewBox="0 0 {SPAN} {TALL}" width="{SPAN}" height="{TALL}" role="img" aria-label="{said}">'
        f'<rect class="marked" x="{place(-margin):.1f}" y="2" width="{place(margin) - place(-margin):.1f}" height="{TALL - 4}"/>'
        f'<path class="axis" d="M{place(0.0):.1f} 2V{TALL - 2}"/>'
        f'<path class="line s1" d="M{place(lower):.1f} {middle}H{place(upper):.1f}"/>'
        f'<circle class="dot s1" cx="{place(estimate):.1f}" cy="{middle}" r="4"/></svg>'
    )
