"""What is said of a log: on the terminal in a few lines, as JSON, and as one page with its curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.dialects.registry import SIGNATURES
from trimtab.records.dumps.loading import READERS
from trimtab.records.files import strict_json
from trimtab.report.compare import SHEET, colour_of, differing_settings
from trimtab.report.draw.axis import FREE
from trimtab.report.draw.chart import Chart, ChartLine
from trimtab.report.draw.figure import DrawnChart, draw_chart, figures_html
from trimtab.report.draw.palette import both_rules, rules
from trimtab.report.html import escape_html, plural, short_number
from trimtab.report.log import IN_WORDS, ReadLog, lab_sentence
from trimtab.report.log_findings import certain, logged_settings
from trimtab.report.metrics import METRICS
from trimtab.report.page import END, chart_page

MOST_SHOWN = 6
"""Curves, moves and inferences that a terminal shows."""
MOST_SETTINGS = 200
NOT_SAYABLE = (
    "Curves cannot tell which of staleness, precision, routing or adapters it is, whether a correction would have helped, "
    "nor what single tokens do."
)
WISHED = {
    "drift/k3": "mismatch KL",
    "drift/abs_log_r_max": "greatest |log ratio|",
    "kept_fraction": "kept fraction",
    "weight/ess": "effective sample size",
}
Lines = list[tuple[str, list[str]]]


def log_lines(read: ReadLog) -> tuple[str, Lines]:
    """The head, and what is said under each heading."""
    log, title = read.log, _title_of(read)
    config = ", settings found" if log.settings else ""
    head = f"{read.title}   {log.kind}{title} ({read.known} of {len(log.curves)} names known)   {plural(log.steps, 'step')}{config}"
    found = certain(read)
    settings = logged_settings(read)
    lines: Lines = [
        ("measured", _measured(read)),
        ("first", [*_moves(read), *([lab_sentence(read)] if lab_sentence(read) else [])]),
        ("certain", [each.sentence for each in found[:MOST_SHOWN]] or ["Nothing: no curve contradicts another."]),
        ("settings", list(settings.lines) if settings else []),
        ("hidden", _hidden(read)),
        ("next", [_next(read)]),
        ("notes", list(log.notes)),
    ]
    return head, [(name, said) for name, said in lines if said]


def _title_of(read: ReadLog) -> str:
    if read.framework is None:
        return ", of no framework that is known" if not read.rows else ""
    return f", {SIGNATURES[read.framework.removesuffix('-async')].title}"


def _measured(read: ReadLog) -> list[str]:
    """Start, end and range of the most telling curves, each with its logged name."""
    lines: list[str] = []
    for metric in read.measured[:MOST_SHOWN]:
        name, row = read.rows[metric]
        part = read.series(metric).finite
        if len(part):
            first, last = short_number(float(part.values[0])), short_number(float(part.values[-1]))
            low, high = short_number(float(part.values.min())), short_number(float(part.values.max()))
            change = f"{first} → {last}, from {low} to {high}" if low != high else f"{first} throughout"
            same = "" if row.relation in ("same", "negative", "complement") else ", another pair, mask or bound"
            lines.append(f"{IN_WORDS.get(metric, metric)} ({name}{same}): {change}")
    return lines or ["No name in it is known. --map OURS=THEIRS names one, as --map drift/k3=my/kl."]


def _moves(read: ReadLog) -> list[str]:
    said = [
        f"{'step ' if place == 0 else ''}{move.step} {move.words}" for place, move in enumerate(read.moves[:MOST_SHOWN])
    ]
    return [" · ".join(said)] if said else ["No curve broke away."]


def _hidden(read: ReadLog) -> list[str]:
    named = [read.rows[metric] for metric in read.measured if read.rows[metric][1].hides]
    said = [f"{name} hides: {row.hides}." for name, row in named[:2]]
    missing = [words for metric, words in WISHED.items() if metric not in read.rows]
    return [*said, *([f"Not logged: {', '.join(missing)}."] if missing else []), NOT_SAYABLE]


def _next(read: ReadLog) -> str:
    """The key that saves a batch, where the framework's own files hold both policies; else our recorder."""
    whose = (read.framework or "").removesuffix("-async")
    whole = (each for each in READERS if each.framework == whose and not {"behavior", "proximal"} & each.absent.keys())
    reader = next(whole, None)
    if reader is not None:
        return f"{reader.option.replace('`', '')} saves a batch; trimtab audit tells the cause from it."
    return (
        "trimtab.Recorder, or `record:` in the plan of a plug-in, saves a batch; trimtab audit tells the cause from it."
    )


def log_json(read: ReadLog) -> dict[str, Any]:
    """The same for programs."""
    settings = logged_settings(read)
    curves: dict[str, Any] = {}
    for metric in read.measured:
        name, row = read.rows[metric]
        part = read.series(metric).finite
        ends = (float(part.values[0]), float(part.values[-1])) if len(part) else (None, None)
        curves[metric] = {
            "name": name,
            "relation": row.relation,
            "first": ends[0],
            "last": ends[1],
            "median": part.median,
        }
    return strict_json(
        {
            "path": str(read.log.path),
            "run": read.log.name,
            "kind": read.log.kind,
            "framework": read.framework,
            "names": len(read.log.curves),
            "known": read.known,
            "steps": read.log.steps,
            "measured": curves,
            "moves": [{"step": move.step, "metric": move.metric, "words": move.words} for move in read.moves],
            "certain": [
                {"kind": each.kind, "sentence": each.sentence, "fault": each.is_fault} for each in certain(read)
            ],
            "settings": list(settings.lines) if settings else [],
            "next": _next(read),
            "notes": list(read.log.notes),
        }
    )


def log_page(reads: Sequence[ReadLog]) -> str:
    """One page: what is said of each log, its curves over each other, and the settings in which they differ."""
    data: list[dict[str, Any]] = []
    names = names_of(reads)
    pairs = list(zip(reads, names, strict=True))
    cards = "".join(_card(read, name, colour_of(place)) for place, (read, name) in enumerate(pairs))
    charts = figures_html(_charts(reads, names), data)
    parts = [
        f'<div class="top"><h1>{escape_html(", ".join(names))}</h1></div><div class="runs">{cards}</div>',
        f'<h2>Curves</h2><div class="charts">{charts}</div>',
        _differences(reads, names) if len(reads) > 1 else "",
        END,
    ]
    title = names[0] if len(names) == 1 else plural(len(names), "log")
    further = max(0, len(reads) - len(SHEET))
    shown = {"charts": data, "rollouts": []}
    return chart_page(f"{title} · trimtab", "".join(parts), shown, both_rules(further), rules(further))


def names_of(reads: Sequence[ReadLog]) -> list[str]:
    """What each log is called on one page: by its file, or by its whole path where two files are called the same."""
    titles = [read.title for read in reads]
    return [
        title if titles.count(title) == 1 else f"{read.log.path} {read.log.name}".strip()
        for read, title in zip(reads, titles, strict=True)
    ]


def _card(read: ReadLog, name: str, colour: int) -> str:
    head, lines = log_lines(read)
    said = "".join(
        f"<p><b>{escape_html(heading)}</b> {'<br>'.join(escape_html(line) for line in each)}</p>"
        for heading, each in lines
    )
    title = f'<h3><i class="s{colour}"></i>{escape_html(name)}</h3><p class="facts">{escape_html(head)}</p>'
    return f'<article class="run">{title}{said}</article>'


def _charts(reads: Sequence[ReadLog], names: Sequence[str]) -> list[DrawnChart]:
    """One chart per metric that any log has, one line per log, a mark where a curve broke away."""
    steps = [series.steps for read in reads for metric in read.rows if len(series := read.series(metric))]
    span = (min(int(each[0]) for each in steps), max(int(each[-1]) for each in steps)) if steps else (0, 1)
    charts: list[DrawnChart] = []
    for metric in (name for name in IN_WORDS if any(name in read.rows for read in reads)):
        lines = [
            ChartLine(name, read.series(metric), colour_of(place))
            for place, (read, name) in enumerate(zip(reads, names, strict=True))
        ]
        shown = METRICS.get(metric)
        title, scale = (shown.title, shown.scale) if shown else (IN_WORDS[metric].capitalize(), FREE)
        note = ", ".join(dict.fromkeys(read.rows[metric][0] for read in reads if metric in read.rows))
        chart = Chart(f"log-{len(charts)}", title, note, lines, scale)
        charts += [] if chart.is_empty else [draw_chart(chart, span)]
    return charts


def _differences(reads: Sequence[ReadLog], names: Sequence[str]) -> str:
    differences = differing_settings([read.log.settings for read in reads])[:MOST_SETTINGS]
    if not differences:
        return ""
    head = "".join(f"<th>{escape_html(name)}</th>" for name in names)
    lines = "".join(
        f'<tr><td class="k">{escape_html(path)}</td>{"".join(f"<td class=k>{escape_html(str(value)[:200])}</td>" for value in values)}</tr>'
        for path, values in differences
    )
    return f'<h2 id="settings">Settings that differ</h2><div class="wide"><table><tr><th>setting</th>{head}</tr>{lines}</table></div>'
