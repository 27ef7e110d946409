"""Bar charts as SVG text: histograms side by side, and stacked bars over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.report.draw.axis import Axis, axis_ends
from trimtab.report.draw.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from trimtab.report.html import escape_html, short_number


@dataclass(frozen=True)
class Bars:
    """One set of bars: a height per class."""

    label: str
    heights: Sequence[float]
    colour: int


@dataclass(frozen=True)
class BarChart:
    """Bars over named classes, side by side or stacked."""

    id: str
    title: str
    note: str
    classes: Sequence[str]
    bars: Sequence[Bars]
    stacked: bool = False
    log: bool = False
    unit: str = ""
    labels: int = 12
    """At most so many classes are named under the axis, the middle one among them."""
    marked: int | None = None
    """A class to stand out."""


def bars_svg(chart: BarChart) -> str:
    """The SVG of a bar chart; each bar says its class and height when pointed at."""
    count = len(chart.classes)
    axis = _height_axis(chart)
    width = (WIDTH - LEFT - RIGHT) / max(count, 1)
    parts: list[str] = []
    for tick in axis.ticks:
        y = float(axis.place(tick))
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick y" x="{LEFT - 6}" y="{y + 3.5:.1f}">{escape_html(short_number(tick))}</text>')
    if chart.marked is not None:
        x = LEFT + chart.marked * width
        parts.append(f'<rect class="marked" x="{x:.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - TOP}"/>')
    for place in range(count):
        parts.append(_column(chart, place, LEFT + place * width, width, axis))
    stride = -(-count // chart.labels)
    for place in range((count // 2) % max(stride, 1), count, max(stride, 1)):
        x = LEFT + (place + 0.5) * width
        parts.append(f'<text class="tick x" x="{x:.1f}" y="{HEIGHT - 6}">{escape_html(chart.classes[place])}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape_html(chart.title)}">{"".join(parts)}</svg>'
    )


def _height_axis(chart: BarChart) -> Axis:
    if chart.stacked:
        heights = [sum(bar.heights[place] for bar in chart.bars) for place in range(len(chart.classes))]
    else:
        heights = [height for bar in chart.bars for height in bar.heights]
    low, high = axis_ends(heights, log=chart.log)
    if not chart.log:
        low = 0.0
        high = high if high > 0 else 1.0
    return Axis(low, high, HEIGHT - BOTTOM, TOP, chart.log)


def _column(chart: BarChart, place: int, left: float, width: float, axis: Axis) -> str:
    gap = min(0.18 * width, 6)
    inner = width - gap
    each = inner if chart.stacked else inner / len(chart.bars)
    below = 0.0
    parts: list[str] = []
    for index, bar in enumerate(chart.bars):
        height = bar.heights[place]
        if not height > 0:
            continue
        top = float(axis.place(below + height))
        foot = float(axis.place(below)) if below or not chart.log else HEIGHT - BOTTOM
        x = left + gap / 2 + (0 if chart.stacked else index * each)
        said = f"{chart.classes[place]} · {bar.label}: {short_number(height)}{chart.unit}"
        parts.append(
            f'<rect class="bar s{bar.colour}" x="{x:.2f}" y="{top:.2f}" width="{max(each - 0.5, 0.5):.2f}" '
            f'height="{max(foot - top, 0.6):.2f}"><title>{escape_html(said)}</title></rect>'
        )
        below += height if chart.stacked else 0.0
    return "".join(parts)
