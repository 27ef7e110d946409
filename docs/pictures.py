"""The pictures of each preset in docs/theory/: weights over the ratio, and bias and variance over the spread.

`python docs/pictures.py` writes them, `--check` says whether they are up to date. Three small ones a preset, which stand beside each
other on a wide screen and below each other on a phone; they follow the reader's light or dark setting.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import accumulate
from pathlib import Path

import costs  # docs/ is on the path
import fates
from fates import ALIKE, ALONE, Kind, Sight, Stretch

from trimtab.config.presets import PRESETS
from trimtab.report.draw.axis import Axis

FOLDER = Path(__file__).parent / "theory"
WIDTH, PLOT_W, PLOT_H, LEFT, TOP = 284, 226.0, 150.0, 42.0, 58.0
SHOWN = 3.0
"""The greatest weight in a picture."""

STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  text { font-family: ui-sans-serif, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2328; font-size: 12px; }
  .title { font-size: 12px; font-weight: 600; }
  .tick, .key { font-size: 11px; fill: #59636e; }
  .axis { stroke: #8c959f; stroke-width: 1; fill: none; }
  .grid { stroke: #eaeef2; stroke-width: 1; }
  .weight, .ess { stroke: #0969da; stroke-width: 2.5; fill: none; stroke-linejoin: round; stroke-linecap: round; }
  .token { stroke: #bc4c00; stroke-width: 2.5; fill: none; stroke-linejoin: round; }
  .sequence { stroke: #8250df; stroke-width: 2.5; fill: none; stroke-dasharray: 6 4; stroke-linejoin: round; }
  .raw { stroke: #8c959f; stroke-width: 1.5; fill: none; stroke-dasharray: 4 4; }
  .rejected { fill: #cf222e; fill-opacity: 0.2; }
  .zero { fill: #bf8700; fill-opacity: 0.25; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #0d1117; stroke: #3d444d; }
    text { fill: #f0f6fc; }
    .tick, .key { fill: #9198a1; }
    .grid { stroke: #21262d; }
    .axis, .raw { stroke: #656c76; }
    .weight, .ess { stroke: #58a6ff; }
    .token { stroke: #f0883e; }
    .sequence { stroke: #bc8cff; }
    .rejected { fill: #f85149; fill-opacity: 0.28; }
    .zero { fill: #d29922; fill-opacity: 0.32; }
  }
"""


def fate_picture(name: str, sight: Sight) -> str:
    """The weight over the ratio, one plot for each advantage that matters."""
    signs = fates.signs(name)
    reach = fates.reach_of(name, sight, signs) or 8.0
    axis = Axis(1 / reach, reach, 0.0, PLOT_W, log=True)
    parts: list[str] = []
    for place, sign in enumerate(signs):
        title = sight.title if len(signs) == 1 else f"{sight.title.partition(',')[0]}, A = {'+1' if sign > 0 else '−1'}"
        parts.append(f'<g transform="translate({LEFT:g} {TOP + place * (PLOT_H + 66):g})">')
        parts += [f'<text class="title" x="-32" y="-16">{escape(title)}</text>', *_grid((0, 1, 2, 3), SHOWN)]
        parts += [
            '<g clip-path="url(#plot)">',
            *_fates(name, sight, axis, fates.stretches(name, sight, fates.grid(reach), sign), sign),
            "</g>",
        ]
        parts += [*_ratio_ticks(axis, reach), "</g>"]
    keys = [("weight", "weight"), ("raw", "unbounded")]
    seen = {each.kind for sign in signs for each in fates.stretches(name, sight, fates.grid(reach), sign)}
    keys += [(kind, words) for kind, words in (("rejected", "rejected"), ("zero", "weight 0")) if kind in seen]
    return _card(f"{name}: {sight.title.lower()}", parts, len(signs), keys)


def _fates(name: str, sight: Sight, axis: Axis, cut: Sequence[Stretch[Kind]], sign: float) -> Iterable[str]:
    def x(ratio: float) -> float:
        return float(axis.place(ratio))

    def path(style: str, ratios: Iterable[float], raw: bool) -> str:
        found = [(x(each), fates.fate(name, sight, each, sign)) for each in ratios]
        return _path(style, [(place, _y(each.raw if raw else each.weight, SHOWN)) for place, each in found])

    for each in cut:
        if each.kind in ("rejected", "zero"):
            begin, end = x(each.ratios[0]), x(each.ratios[-1])
            yield f'<rect class="{each.kind}" x="{begin:.1f}" y="0" width="{end - begin:.1f}" height="{PLOT_H:g}"/>'
    yield path("raw", [ratio for each in cut for ratio in each.ratios], raw=True)
    drawn: list[list[float]] = [[]]
    for each in cut:  # kept and held belong to one line
        if each.kind in ("kept", "held"):
            drawn[-1] += each.ratios
        elif drawn[-1]:
            drawn.append([])
    yield from (path("weight", each, raw=False) for each in drawn if each)


def cost_picture(name: str) -> str:
    """Effective sample size and bias over the spread."""
    axis = Axis(costs.SPREADS[0], costs.SPREADS[-1], 0.0, PLOT_W, log=True)
    found = [(float(axis.place(spread)), costs.cost(name, spread)) for spread in costs.SPREADS]
    lines = {
        "ess": [(x, each.ess) for x, each in found],
        "token": [(x, each.token) for x, each in found],
        "sequence": [(x, each.sequence) for x, each in found],
    }
    parts = [f'<g transform="translate({LEFT:g} {TOP:g})">']
    parts += [
        '<text class="title" x="-32" y="-16">Samples left and bias, by σ</text>',
        *_grid((0, 0.5, 1), 1.0),
    ]
    for style, points in lines.items():
        finite = [(x, _y(value, 1.0)) for x, value in points if not math.isnan(value)]
        parts += [_path(style, finite)] if finite else []
    parts.append(f'<path class="axis" d="M0 0 V{PLOT_H:g} H{PLOT_W:g}"/>')
    for spread in (0.01, 0.03, 0.1, 0.3, 1.0):
        parts += _tick(float(axis.place(spread)), f"{spread:g}")
    keys = (("ess", "ESS"), ("token", "bias, token"), ("sequence", "bias, sequence"))
    return _card(f"{name}: bias and variance", [*parts, "</g>"], 1, keys)


def _y(value: float, top: float) -> float:
    return PLOT_H * (1 - min(value, 2 * top) / top)


def _path(style: str, points: Sequence[tuple[float, float]]) -> str:
    return f'<path class="{style}" d="M{" L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>'


def _grid(values: Iterable[float], top: float) -> Iterable[str]:
    for value in values:
        y = _y(value, top)
        yield f'<line class="grid" x1="0" x2="{PLOT_W:g}" y1="{y:g}" y2="{y:g}"/>'
        yield f'<text class="tick" x="-8" y="{y + 4:g}" text-anchor="end">{value:g}</text>'


TICKS: dict[float, dict[float, str]] = {
    1.02: {each: f"{each:g}" for each in (0.98, 0.99, 1.0, 1.01, 1.02)},
    1.25: {each: f"{each:g}" for each in (0.8, 0.9, 1.0, 1.1, 1.25)},
    8.0: {0.125: "1/8", 0.25: "1/4", 0.5: "1/2", 1.0: "1", 2.0: "2", 4.0: "4", 8.0: "8"},
    1e5: {1e-4: "0.0001", 0.01: "0.01", 1.0: "1", 100.0: "100", 1e4: "10,000"},
}
"""By how far the ratios go."""


def _ratio_ticks(axis: Axis, reach: float) -> Iterable[str]:
    yield f'<path class="axis" d="M0 0 V{PLOT_H:g} H{PLOT_W:g}"/>'
    for ratio, label in TICKS[reach].items():
        yield from _tick(float(axis.place(ratio)), label)


def _tick(x: float, label: str) -> Iterable[str]:
    yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{PLOT_H:g}" y2="{PLOT_H + 4:g}"/>'
    yield f'<text class="tick" x="{x:.1f}" y="{PLOT_H + 18:g}" text-anchor="middle">{label}</text>'


def _card(title: str, parts: Iterable[str], plots: int, keys: Sequence[tuple[str, str]]) -> str:
    height = round(TOP + plots * (PLOT_H + 66) - 10)
    starts = accumulate((34 + 6.2 * len(words) for _, words in keys), initial=10.0)
    legend = "".join(
        f'<g transform="translate({start:.0f} {height - 14})">'
        + (
            f'<rect class="{style}" y="-9" width="16" height="11"/>'
            if style in ("rejected", "zero")
            else f'<path class="{style}" d="M0 -4 H16"/>'
        )
        + f'<text class="key" x="20" y="0">{escape(words)}</text></g>'
        for start, (style, words) in zip(starts, keys, strict=False)
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
            f'<defs><clipPath id="plot"><rect width="{PLOT_W:g}" height="{PLOT_H:g}"/></clipPath></defs>',
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            f'<text class="key" x="12" y="18">{escape(title.partition(":")[0])}</text>',
            *parts,
            legend,
            "</svg>",
            "",
        ]
    )


DRAWN: dict[str, tuple[str, Callable[[str], str]]] = {
    "alone": ("Weight of one token by its ratio", lambda name: fate_picture(name, ALONE)),
    "alike": ("Weight when all tokens have one ratio", lambda name: fate_picture(name, ALIKE)),
    "cost": ("Effective sample size and bias by the spread of the log-ratio", cost_picture),
}
"""The pictures of a preset: what each shows, and how it is drawn."""


def kinds_of(name: str) -> list[str]:
    """Which of the pictures a preset has."""
    return [kind for kind in DRAWN if kind != "cost" or costs.has_cost(PRESETS[name]())]


def file_of(name: str, kind: str) -> Path:
    """Where a picture stands."""
    return FOLDER / f"{name.replace('+', '-')}-{kind}.svg"


def pictures(name: str) -> dict[Path, str]:
    """The pictures of a preset by the file each stands in."""
    return {file_of(name, kind): DRAWN[kind][1](name) for kind in kinds_of(name)}


def every_picture() -> dict[Path, str]:
    """All that stands in the folder."""
    return {path: text for name in PRESETS for path, text in pictures(name).items()}


def main(arguments: list[str]) -> int:
    """Write the pictures, or with --check compare them; one that belongs to no preset goes."""
    FOLDER.mkdir(exist_ok=True)
    wanted = every_picture()
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    left = sorted(set(FOLDER.glob("*.svg")) - set(wanted))
    if "--check" in arguments:
        for path in [*stale, *left]:
            print(f"{path.name} is stale: run `python docs/pictures.py`.")
        print(f"{len(wanted) - len(stale)} of {len(wanted)} pictures are up to date.")
        return int(bool(stale or left))
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    for path in left:
        path.unlink()
    print(f"Wrote {len(stale)} pictures, removed {len(left)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
