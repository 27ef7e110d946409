"""Draw docs/corrections.svg: what presets do to a token by its ratio, and to a sequence by its mean ratio.

`python docs/figures.py` writes it, `--check` says whether it is up to date. Numbers come from trimtab.explain.arithmetic.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for those that load this file by its path

from fates import Stretch, cut_where

from trimtab.config.correction import Correction
from trimtab.config.presets import preset
from trimtab.explain.arithmetic import Token, outcome
from trimtab.explain.gate_words import inequality, statistic
from trimtab.explain.words import weight_formula
from trimtab.report.draw.axis import Axis

PATH = Path(__file__).parent / "corrections.svg"

WIDTH, HEIGHT = 1200, 616
PLOT_W, PLOT_H, TOP = 240.0, 150.0, 3.0  # TOP: the greatest weight shown
LEFTS = [44.0 + 288.0 * column for column in range(4)]
LENGTH = 200

STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  text { font-family: ui-sans-serif, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; font-size: 13px; }
  .name { font-family: ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; font-size: 15px; font-weight: 700; }
  .formula { font-size: 11.5px; fill: #59636e; }
  .tick { font-size: 11px; fill: #59636e; }
  .row { font-size: 16px; font-weight: 600; }
  .axis { stroke: #8c959f; stroke-width: 1; fill: none; }
  .grid { stroke: #eaeef2; stroke-width: 1; }
  .weight { stroke: #0969da; stroke-width: 3; fill: none; stroke-linecap: round; stroke-linejoin: round; }
  .raw { stroke: #8c959f; stroke-width: 1.5; fill: none; stroke-dasharray: 4 4; }
  .rejected { fill: #cf222e; fill-opacity: 0.14; }
  .hatch { stroke: #cf222e; stroke-opacity: 0.55; stroke-width: 1.5; }
  .zero { fill: #bf8700; fill-opacity: 0.22; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .formula, .tick { fill: #9198a1; }
    .grid { stroke: #21262d; }
    .axis, .raw { stroke: #656c76; }
    .weight { stroke: #58a6ff; }
    .rejected { fill: #f85149; fill-opacity: 0.18; }
    .hatch { stroke: #f85149; stroke-opacity: 0.6; }
    .zero { fill: #d29922; fill-opacity: 0.28; }
  }
"""


@dataclass(frozen=True)
class Row:
    """Four panels over one axis of ratios, its ticks, and the sequence that stands for a ratio."""

    title: str
    top: float
    names: tuple[str, ...]
    axis: Axis
    ticks: tuple[float, ...]
    sequence: Callable[[float], tuple[Token, ...]]

    def x(self, ratio: float) -> float:
        """Where a ratio lies in a panel."""
        return float(self.axis.place(ratio))


ROWS = (
    Row(
        "A token, by its ratio r",
        40.0,
        ("off", "token-tis", "token-mis", "icepop"),
        Axis(1 / 8, 8.0, 0.0, PLOT_W, log=True),
        (0.125, 0.25, 0.5, 1, 2, 4, 8),
        lambda ratio: (Token(0.1, 0.1 * ratio),),
    ),
    Row(
        f"A sequence of {LENGTH} tokens, by the geometric mean of their ratios",
        314.0,
        ("seq-tis", "seq-mis", "geo-rs", "geo-rs+token-mis"),
        Axis(0.98, 1.02, 0.0, PLOT_W, log=True),
        (0.98, 0.99, 1, 1.01, 1.02),
        lambda ratio: (Token(0.5, 0.5 * ratio),) * LENGTH,
    ),
)


def fate(rule: Correction, row: Row, ratio: float) -> tuple[str, float]:
    """What becomes of the first token, and its weight."""
    found = outcome(rule, row.sequence(ratio))
    if not found.kept[0]:
        return "rejected", 0.0
    return ("zero" if found.weight[0] == 0 else "kept"), found.weight[0]


def cut(rule: Correction, row: Row, steps: int = 120) -> list[Stretch[str]]:
    """The axis cut where the fate changes."""
    low, high = row.axis.low, row.axis.high
    ratios = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
    return cut_where(lambda ratio: fate(rule, row, ratio)[0], ratios)


def _y(weight: float) -> float:
    return PLOT_H * (1 - weight / TOP)


def _line(rule: Correction, row: Row, ratios: tuple[float, ...], style: str) -> str:
    points = [(row.x(ratio), _y(fate(rule, row, ratio)[1])) for ratio in ratios]
    path = " ".join(f"{'M' if place == 0 else 'L'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(points))
    return f'<path class="{style}" d="{path}"/>'


def caption(rule: Correction) -> str:
    """The gates and the weight on one line."""
    gates = ", ".join(inequality(statistic(gate), gate.lower, gate.upper) for gate in rule.gates)
    weight = weight_formula(rule.weight).replace(" over the sequence", "")
    return f"keep if {gates} · w = {weight}" if gates else f"w = {weight}"


def panel(row: Row, left: float, name: str) -> list[str]:
    """One preset: shaded fates, the raw ratio dashed, the weight on top."""
    rule, top = preset(name), row.top + 62
    parts = [
        f'<g transform="translate({left:g} {top:g})">',
        f'<text class="name" x="0" y="-26">{escape(name)}</text>',
        f'<text class="formula" x="0" y="-9">{escape(caption(rule))}</text>',
    ]
    for weight in range(int(TOP) + 1):
        parts.append(f'<line class="grid" x1="0" x2="{PLOT_W:g}" y1="{_y(weight):g}" y2="{_y(weight):g}"/>')
        parts.append(f'<text class="tick" x="-8" y="{_y(weight) + 4:g}" text-anchor="end">{weight}</text>')
    parts.append('<g clip-path="url(#plot)">')
    found = cut(rule, row)
    for stretch in found:
        if stretch.kind != "kept":
            begin, end = row.x(stretch.ratios[0]), row.x(stretch.ratios[-1])
            for style in ("rejected", "hatched") if stretch.kind == "rejected" else ("zero",):
                fill = ' fill="url(#hatch)"' if style == "hatched" else f' class="{style}"'
                parts.append(f'<rect x="{begin:.1f}" y="0" width="{end - begin:.1f}" height="{PLOT_H:g}"{fill}/>')
    if rule.weight is not None and rule.weight.level != "one":
        raw = Correction(weight=rule.weight.but(lower=None, upper=None, outside="clamp"))
        parts.append(_line(raw, row, tuple(ratio for stretch in found for ratio in stretch.ratios), "raw"))
    parts.extend(_line(rule, row, stretch.ratios, "weight") for stretch in found if stretch.kind == "kept")
    parts.append("</g>")
    parts.append(f'<path class="axis" d="M0 0 V{PLOT_H:g} H{PLOT_W:g}"/>')
    for tick in row.ticks:
        parts.append(
            f'<line class="axis" x1="{row.x(tick):.1f}" x2="{row.x(tick):.1f}" y1="{PLOT_H:g}" y2="{PLOT_H + 4:g}"/>'
        )
        label = f"1/{round(1 / tick)}" if tick < 0.6 else f"{tick:g}"
        parts.append(
            f'<text class="tick" x="{row.x(tick):.1f}" y="{PLOT_H + 18:g}" text-anchor="middle">{label}</text>'
        )
    return [*parts, "</g>"]


def legend(top: float) -> list[str]:
    """What lines and shades mean."""
    box = 'x="0" y="-9" width="34" height="18"'
    entries = [
        ('<path class="weight" d="M0 0 H34"/>', "weight of a kept token"),
        ('<path class="raw" d="M0 0 H34"/>', "its raw ratio"),
        (f'<rect class="rejected" {box}/><rect fill="url(#hatch)" {box}/>', "rejected: leaves the mask"),
        (f'<rect class="zero" {box}/>', "weight 0: stays in the denominator"),
    ]
    return [
        f'<g transform="translate({LEFTS[place]:g} {top:g})">{mark}<text x="44" y="4">{escape(words)}</text></g>'
        for place, (mark, words) in enumerate(entries)
    ]


def figure() -> str:
    """The whole picture as SVG text; it follows the reader's light or dark setting."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="title">',
        '<title id="title">What eight corrections do to a token by its ratio and to a sequence by its mean ratio</title>',
        f"<style>{STYLE}</style>",
        f'<defs><clipPath id="plot"><rect width="{PLOT_W:g}" height="{PLOT_H:g}"/></clipPath>',
        '<pattern id="hatch" width="8" height="8" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        '<line class="hatch" x1="0" y1="0" x2="0" y2="8"/></pattern></defs>',
        f'<rect class="card" x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="12"/>',
    ]
    for row in ROWS:
        parts.append(f'<text class="row" x="{LEFTS[0]:g}" y="{row.top:g}">{escape(row.title)}</text>')
        for left, name in zip(LEFTS, row.names, strict=True):
            parts.extend(panel(row, left, name))
    parts.extend(legend(HEIGHT - 32.0))
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: list[str]) -> int:
    """Write the figure, or with --check compare it."""
    if "--check" in arguments:
        fresh = PATH.is_file() and PATH.read_text(encoding="utf-8") == figure()
        print(f"{PATH.name} is {'up to date' if fresh else 'stale: run `python docs/figures.py`'}.")
        return 0 if fresh else 1
    PATH.write_text(figure(), encoding="utf-8")
    print(f"Wrote {PATH}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
