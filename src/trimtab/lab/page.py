"""lab.html: the answer, then per scenario the table, accuracy by correction, and the charts; no network, nothing trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.lab.candidate import DEFAULTS
from trimtab.lab.panels import CONTROL_COLOUR, PANELS, colours_of, line_label, small_multiples
from trimtab.lab.results import LabResults
from trimtab.lab.scenario import CONTROL
from trimtab.lab.table import CAUTION, HEAD, correction_rows, equal_rows, remarks, row_texts
from trimtab.lab.verdict import ORDER
from trimtab.report.draw.chart import Chart, chart_svg
from trimtab.report.draw.figure import figure_html, paper_style, with_paper
from trimtab.report.draw.palette import both_rules, rules
from trimtab.report.html import asset, document, escape_html


def lab_html(results: LabResults, title: str = "trimtab lab") -> str:
    """The whole page."""
    # The control comes last: the others are compared with it.
    names = sorted((name for name in results.scenarios if results.of(name)), key=lambda name: name == CONTROL)
    parts = [
        _header(results, title),
        _answers(results, names),
        *(_scenario(results, name) for name in names),
        "<footer>Written by trimtab.</footer>",
    ]
    many = max(len(colours_of(results)), len(DEFAULTS))
    dashed = f".charts:not(.small) .line.s{CONTROL_COLOUR}{{stroke-dasharray:5 3;opacity:.8}}"
    style = asset("page.css") + asset("chart.css") + asset("lab.css", "trimtab.lab") + both_rules(many) + dashed
    script = asset("lab.js", "trimtab.lab") + asset("paper.js")
    return document(title, "".join(parts), style=style, script=script, data={"paper": paper_style(rules(many))})


def _header(results: LabResults, title: str) -> str:
    said = "".join(f"<li>{escape_html(each)}</li>" for each in remarks(results) if each != CAUTION)
    facts = f"{results.steps} steps, seeds {', '.join(map(str, results.seeds))}, trimtab {results.trimtab}"
    return (
        f'<div class="top"><h1>{escape_html(title)}</h1></div><p class="rule">{escape_html(facts)}</p>'
        f'<p><b>{escape_html(CAUTION)}</b></p><ul class="remarks">{said}</ul>'
    )


def _answers(results: LabResults, names: Sequence[str]) -> str:
    """What each scenario says of the corrections: those whose worst seed came to the same word, the best first."""
    items: list[str] = []
    for name in names:
        rows = correction_rows(results, name)
        items.append(f'<li><a href="#{escape_html(name)}"><b>{escape_html(name)}</b></a><ul>')
        for word in (each for each in ORDER if any(row.word == each for row in rows)):
            alike = [row.correction for row in rows if row.word == word]
            who = f"all {len(rows)}" if len(alike) == len(rows) > 3 else ", ".join(alike)
            items.append(f'<li><span class="word {_style(word)}">{escape_html(word)}</span> {escape_html(who)}</li>')
        items.append("</ul></li>")
    return (
        '<h2 id="answer">Which corrections stood</h2><p class="legend"><span>By the worst seed of each, the best first.</span></p>'
        f'<ul class="answers">{"".join(items)}</ul>'
    )


def _scenario(results: LabResults, name: str) -> str:
    span = (0, results.steps)
    charts = [chart for panel in PANELS if not (chart := panel.chart(results, name)).is_empty]
    small = "".join(_figure(chart, span) for chart in small_multiples(results, name))
    drawn = "".join(_figure(chart, span) for chart in charts)
    return (
        f'<section><h2 id="{escape_html(name)}">{escape_html(name)}: {escape_html(results.scenarios[name])}</h2>{_table(results, name)}'
        f'<h3>Held-out accuracy, one line per seed</h3><p class="legend"><span>grey: the on-policy control of each seed</span></p>'
        f'<div class="charts small">{small}</div>'
        '<h3>All corrections</h3><p class="legend"><span>One colour per correction, one thin line per seed; '
        "point at a row of the table, untick it to hide its lines.</span></p>"
        f'<div class="charts">{drawn}</div></section>'
    )


def _figure(chart: Chart, span: tuple[int, int]) -> str:
    svg, _ = chart_svg(chart, span)
    keys = {line.colour: line.label.partition(", seed ")[0] for line in chart.lines if len(line.series.finite)}
    return figure_html(chart.id, chart.title, chart.note, "", with_paper(svg, chart.title, list(keys.items())))


def _table(results: LabResults, name: str) -> str:
    colours = colours_of(results)
    head = "".join(f"<th>{escape_html(each)}</th>" for each in _verdict_first(HEAD))
    lines: list[str] = []
    for row in correction_rows(results, name):
        colour, (first, *rest) = colours[row.correction], row_texts(row)
        box = f'<label><input type="checkbox" checked data-s="{colour}"><i class="s{colour}"></i>{escape_html(first)}</label>'
        why = " / ".join(f"{line_label(each)}: {_reason(each)}" for each in row.cells)
        cells = [f'<td class="n">{escape_html(each)}</td>' for each in rest]
        cells[2] = (
            f'<td title="{escape_html(why)}"><span class="word {_style(row.word)}">{escape_html(rest[2])}</span></td>'
        )
        lines.append(f'<tr data-s="{colour}">{"".join(_verdict_first([f"<td>{box}</td>", *cells]))}</tr>')
    tools = '<button type="button" data-all="1">all</button> <button type="button" data-all="">none</button>'
    under = [tools if len(lines) > 1 else "", escape_html(equal_rows(results, name))]
    said = "".join(f"<p>{each}</p>" for each in under if each)
    return f'<div class="wide"><table class="cells"><tr>{head}</tr>{"".join(lines)}</table></div>{said}'


def _verdict_first(cells: Sequence[str]) -> list[str]:
    """The verdict right after the name, so that a narrow screen shows it."""
    name, last, late, verdict, *others = cells
    return [name, verdict, last, late, *others]


def _reason(entry: Any) -> str:
    return entry.message if entry.verdict is None else f"{entry.word}, {entry.verdict.reason}"


def _style(word: str) -> str:
    return word if " " not in word else "so-far"
