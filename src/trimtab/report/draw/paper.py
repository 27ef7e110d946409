"""A chart as a picture of its own: title and keys inside the SVG, a style that needs no page, black on white.

Every SVG of a page carries its title and keys in a group that the page hides. A file is the same SVG with its frame moved out to
show them; `paper.js` does in the browser what `picture` does here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

from trimtab.report.draw.chart import HEIGHT, LEFT, WIDTH
from trimtab.report.text import escape_html

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
    found = re.search(r'data-box="([^"]*)"', svg)
    assert found is not None
    x, y, width, height = found[1].split()
    inner = svg.partition(">")[2]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{found[1]}" width="{width}" height="{height}" role="img">'
        f'<style>{style}</style><rect x="{x}" y="{y}" width="{width}" height="{height}" fill="#ffffff"/>{inner}\n'
    )


def paper_style(further: str = "") -> str:
    """The style of charts with the light colours put in; `further` rules after it."""
    files = resources.files("trimtab.report")
    page, chart = (files.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "chart.css"))
    light = dict(re.findall(r"--([\w-]+): ([^;]+);", page.partition("@media")[0])) | {"card": "#fff"}
    return re.sub(r"var\(--([\w-]+)\)", lambda name: light[name[1]], chart) + further
