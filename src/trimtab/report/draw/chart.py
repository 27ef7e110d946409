"""Line charts as SVG text: small multiples over one range of steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.report.draw.axis import FREE, Axis, Scale, axis_ends, round_ticks
from trimtab.report.html import escape_html, short_number
from trimtab.report.series import Series, thin_series

WIDTH, HEIGHT = 460, 190
LEFT, RIGHT, TOP, BOTTOM = 50, 10, 8, 22


@dataclass(frozen=True)
class ChartLine:
    """A curve, or the lower edge of a band with its `upper` edge."""

    label: str
    series: Series
    colour: int
    """Of the palette, from 1."""
    upper: Series | None = None
    faint: bool = False
    dots: bool = False


@dataclass(frozen=True)
class Mark:
    """A vertical line at a step."""

    step: int
    kind: str
    """sign, fall or event."""
    text: str


@dataclass(frozen=True)
class Bound:
    """A horizontal line at a value."""

    value: float
    text: str


@dataclass(frozen=True)
class Chart:
    """One panel."""

    id: str
    title: str
    note: str
    """How to read it, in one sentence."""
    lines: Sequence[ChartLine]
    scale: Scale = FREE
    bounds: Sequence[Bound] = field(default_factory=tuple[Bound, ...])

    @property
    def is_empty(self) -> bool:
        """Whether no line has a number."""
        return not any(len(line.series.finite) for line in self.lines)


def chart_svg(chart: Chart, span: tuple[int, int], marks: Sequence[Mark] = ()) -> tuple[str, dict[str, Any]]:
    """The SVG of a panel, and what the page's script needs to read values under the pointer."""
    lines = [_thin(line) for line in chart.lines if len(line.series.finite)]
    value_axis, time_axis = _axes(chart, lines, span)
    parts = [_grid(value_axis, time_axis)]
    parts += [_mark(mark, time_axis) for mark in marks]
    parts += [_band(line, value_axis, time_axis) for line in lines if line.upper is not None]
    parts += [_curve(line, value_axis, time_axis) for line in lines]
    # Last, so that no curve hides what a bound is called.
    parts += [_bound(bound, value_axis) for bound in chart.bounds if value_axis.low <= bound.value <= value_axis.high]
    parts.append('<g class="cursor" visibility="hidden"></g>')
    svg = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape_html(chart.title)}">{"".join(parts)}</svg>'
    )
    return svg, _pointer_data(lines, value_axis, time_axis)


def _thin(line: ChartLine) -> ChartLine:
    if line.upper is None:
        return ChartLine(line.label, thin_series(line.series), line.colour, None, line.faint, line.dots)
    low, high = thin_series(line.series, keep="least"), thin_series(line.upper, keep="greatest")
    return ChartLine(line.label, low, line.colour, high, line.faint, line.dots)


def _axes(chart: Chart, lines: Sequence[ChartLine], span: tuple[int, int]) -> tuple[Axis, Axis]:
    values = [float(v) for line in lines for part in (line.series, line.upper) if part for v in part.finite.values]
    log = chart.scale.log and any(value > 0 for value in values)
    if chart.scale.ends and not log:
        low, high = chart.scale.ends
    else:
        low, high = axis_ends([*values, *(bound.value for bound in chart.bounds)], log=log)
        low = min(0.0, *values) if chart.scale.from_zero and not log else low
    first, last = span
    return (
        Axis(low, high, HEIGHT - BOTTOM, TOP, log),
        Axis(first, max(last, first + 1), LEFT, WIDTH - RIGHT),
    )


def _grid(values: Axis, time: Axis) -> str:
    parts: list[str] = []
    for tick in values.ticks:
        y = float(values.place(tick))
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="tick y" x="{LEFT - 6}" y="{y + 3.5:.1f}">{escape_html(short_number(tick))}</text>')
    for tick in round_ticks(time.low, time.high, 5):
        if float(tick).is_integer():
            x = float(time.place(tick))
            parts.append(f'<text class="tick x" x="{x:.1f}" y="{HEIGHT - 6}">{int(tick):,}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    return "".join(parts)


def _mark(mark: Mark, time: Axis) -> str:
    x = float(time.place(mark.step))
    return (
        f'<path class="mark {mark.kind}" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}">'
        f"<title>step {mark.step}: {escape_html(mark.text)}</title></path>"
    )


def _bound(bound: Bound, values: Axis) -> str:
    y = float(values.place(bound.value))
    under = y - 4 if y > TOP + 12 else y + 11
    return (
        f'<path class="bound" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>'
        f'<text class="bound" x="{WIDTH - RIGHT - 2}" y="{under:.1f}">{escape_html(bound.text)}</text>'
    )


def _places(series: Series, values: Axis, time: Axis) -> list[list[tuple[float, float]]]:
    """Runs of points without a gap."""
    finite = np.isfinite(series.values)
    xs, ys = time.place(series.steps.astype(np.float64)), values.place(np.where(finite, series.values, values.low))
    runs: list[list[tuple[float, float]]] = [[]]
    for x, y, real in zip(xs.tolist(), ys.tolist(), finite.tolist(), strict=True):
        if real:
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _path(run: Sequence[tuple[float, float]]) -> str:
    if len(run) == 1:  # a lone point: a line of no length shows as a dot under round caps
        return f"M{run[0][0]:.1f} {run[0][1]:.1f}h0"
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in run)


def _curve(line: ChartLine, values: Axis, time: Axis) -> str:
    edges = [line.series] if line.upper is None else []
    runs = [run for edge in edges for run in _places(edge, values, time)]
    kind = f"line s{line.colour}{' faint' if line.faint else ''}"
    drawn = f'<path class="{kind}" d="{"".join(_path(run) for run in runs)}"/>' if runs else ""
    if line.dots and sum(map(len, runs)) <= 60:
        drawn += "".join(
            f'<circle class="dot s{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for run in runs for x, y in run
        )
    return drawn


def _band(line: ChartLine, values: Axis, time: Axis) -> str:
    assert line.upper is not None
    low = [point for run in _places(line.series, values, time) for point in run]
    high = [point for run in _places(line.upper, values, time) for point in run]
    if not low or not high:
        return ""
    return f'<path class="band s{line.colour}" d="{_path([*high, *reversed(low)])}Z"/>'


def _pointer_data(lines: Sequence[ChartLine], values: Axis, time: Axis) -> dict[str, Any]:
    return {
        "x": [time.low, time.high, time.start, time.end],
        "y": [values.low, values.high, values.start, values.end],
        "log": values.log,
        "lines": [
            {
                "s": line.series.steps.tolist(),
                "v": _round_values(line.series),
                "u": None if line.upper is None else [line.upper.steps.tolist(), _round_values(line.upper)],
            }
            for line in lines
        ],
    }


def _round_values(series: Series) -> list[float | None]:
    """Four significant digits; None where it is not a number."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in series.values.tolist()]
