"""lab.html: per scenario the table, accuracy by correction, and the charts; no network, nothing trusted."""

from __future__ import annotations

from typing import Any

from trimtab.lab.book import Book
from trimtab.lab.candidate import DEFAULTS
from trimtab.lab.panels import CONTROL_COLOUR, FIRST_COLOUR, PANELS, colours_of, label, small_multiples
from trimtab.lab.table import CAUTION, HEAD, columns, equal_rows, remarks, rows
from trimtab.report.chart import Chart, chart_svg
from trimtab.report.shell import asset, document, figure
from trimtab.report.text import escaped


def html(book: Book, title: str = "trimtab lab") -> str:
    """The whole page."""
    names = [name for name in book.scenarios if book.of(name)]
    parts = [_header(book, title), *(_scenario(book, name) for name in names), "<footer>Written by trimtab.</footer>"]
    style = asset("page.css") + asset("lab.css", "trimtab.lab") + _palette(len(colours_of(book)))
    return document(title, "".join(parts), style=style, script=asset("lab.js", "trimtab.lab"), data={})


def _header(book: Book, title: str) -> str:
    said = "".join(f"<li>{escaped(each)}</li>" for each in remarks(book) if each != CAUTION)
    facts = f"{book.steps} steps, seeds {', '.join(map(str, book.seeds))}, trimtab {book.trimtab}"
    return (
        f'<div class="top"><h1>{escaped(title)}</h1></div><p class="rule">{escaped(facts)}</p>'
        f'<p><b>{escaped(CAUTION)}</b></p><ul class="remarks">{said}</ul>'
    )


def _scenario(book: Book, name: str) -> str:
    span = (0, book.steps)
    charts = [chart for panel in PANELS if not (chart := panel.chart(book, name)).is_empty]
    small = "".join(_figure(chart, span) for chart in small_multiples(book, name))
    drawn = "".join(_figure(chart, span) for chart in charts)
    return (
        f'<section><h2 id="{escaped(name)}">{escaped(name)}: {escaped(book.scenarios[name])}</h2>{_table(book, name)}'
        f'<h3>Held-out accuracy, one line per seed</h3><p class="legend"><span>grey: the on-policy control of each seed</span></p>'
        f'<div class="charts small">{small}</div>'
        '<h3>All corrections</h3><p class="legend"><span>One colour per correction, one thin line per seed; '
        "point at a row of the table, untick it to hide its lines.</span></p>"
        f'<div class="charts">{drawn}</div></section>'
    )


def _figure(chart: Chart, span: tuple[int, int]) -> str:
    svg, _ = chart_svg(chart, span)
    return figure(chart.id, chart.title, chart.note, "", svg)


def _table(book: Book, name: str) -> str:
    colours = colours_of(book)
    head = "".join(f"<th>{escaped(each)}</th>" for each in HEAD)
    lines: list[str] = []
    for row in rows(book, name):
        colour, (first, *rest) = colours[row.correction], columns(row)
        box = (
            f'<label><input type="checkbox" checked data-s="{colour}"><i class="s{colour}"></i>{escaped(first)}</label>'
        )
        why = " / ".join(f"{label(each)}: {_reason(each)}" for each in row.cells)
        cells = [f'<td class="n">{escaped(each)}</td>' for each in rest]
        cells[2] = f'<td title="{escaped(why)}"><span class="word {_style(row.word)}">{escaped(rest[2])}</span></td>'
        lines.append(f'<tr data-s="{colour}"><td>{box}</td>{"".join(cells)}</tr>')
    tools = '<button type="button" data-all="1">all</button> <button type="button" data-all="">none</button>'
    under = [tools if len(lines) > 1 else "", escaped(equal_rows(book, name))]
    said = "".join(f"<p>{each}</p>" for each in under if each)
    return f'<div class="wide"><table class="cells"><tr>{head}</tr>{"".join(lines)}</table></div>{said}'


def _reason(entry: Any) -> str:
    return entry.message if entry.verdict is None else f"{entry.word}, {entry.verdict.reason}"


def _style(word: str) -> str:
    return word if " " not in word else "so-far"


def _palette(many: int) -> str:
    """Hues as far apart as they get, light and dark turns."""
    parts: list[str] = []
    for place in range(max(many, len(DEFAULTS))):
        hue, light = round(place * 137.508) % 360, (42, 55, 34)[place % 3]
        colour, name = f"hsl({hue} 65% {light}%)", f"s{FIRST_COLOUR + place}"
        parts.append(f".line.{name}{{stroke:{colour}}}i.{name}{{background:{colour}}}")
    return "".join([*parts, f".charts:not(.small) .line.s{CONTROL_COLOUR}{{stroke-dasharray:5 3;opacity:.8}}"])
