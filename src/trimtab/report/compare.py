"""Several runs on one page: verdicts side by side, curves over each other, and the settings in which they differ."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

from trimtab.config.correction import Correction
from trimtab.config.presets import preset, preset_names
from trimtab.errors import ConfigError, ConfigWarning
from trimtab.report.charts.panels import chart_span
from trimtab.report.draw.chart import Chart, ChartLine
from trimtab.report.draw.figure import DrawnChart, draw_chart, figures_html
from trimtab.report.draw.palette import FIRST_COLOUR, both_rules, rules
from trimtab.report.findings.learning import run_verdict, verdict_word, with_start
from trimtab.report.findings.table import findings_of, gravest
from trimtab.report.html import escape_html, percent, plural, short_number
from trimtab.report.metrics import METRICS
from trimtab.report.page import END, chart_page, try_html, word_html
from trimtab.report.run import Run, settings_by_path
from trimtab.report.series import Series

SHEET = (1, 2, 3, 4, 5)
"""Colours of the style sheet that runs take first."""
CURVES = {
    "accuracy": "eval/accuracy",
    "rollouts": "rollout/accuracy",
    "mismatch": "drift/k3",
    "kept": "kept_fraction",
    "gradient": "train/grad_norm",
    "entropy": "policy/entropy",
    "staleness": "staleness/oldest_mean",
}
"""Id and metric of each chart."""


def comparison(runs: Sequence[Run]) -> str:
    """The whole page; runs are told apart by their names."""
    data: list[dict[str, Any]] = []
    cards = "".join(_card(run, colour_of(place)) for place, run in enumerate(runs))
    body = figures_html(compared_charts(runs), data)
    further = max(0, len(runs) - len(SHEET))
    parts = [
        f'<div class="top"><h1>{escape_html(", ".join(run.name for run in runs))}</h1></div>',
        f'<div class="runs">{cards}</div>',
        '<h2>Curves</h2><p class="legend"><span>All charts share the steps; point at one to read all.</span></p>',
        f'<div class="charts">{body}</div>',
        _differences(runs),
        END,
    ]
    title = f"{plural(len(runs), 'run')} · trimtab"
    return chart_page(title, "".join(parts), {"charts": data, "rollouts": []}, both_rules(further), rules(further))


def colour_of(place: int) -> int:
    """The colour of a run by its place."""
    return SHEET[place] if place < len(SHEET) else FIRST_COLOUR + place - len(SHEET)


def compared_charts(runs: Sequence[Run]) -> list[DrawnChart]:
    """One chart per metric that any of the runs has, one line per run."""
    spans = [chart_span(run) for run in runs if run.metrics]
    span = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else (0, 1)
    charts: list[DrawnChart] = []
    for name, metric in CURVES.items():
        lines = [
            ChartLine(run.name, _curve(run, metric), colour_of(place), dots=metric == "eval/accuracy")
            for place, run in enumerate(runs)
        ]
        shown = METRICS[metric]
        chart = Chart(name, shown.title, shown.note, lines, shown.scale)
        charts += [] if chart.is_empty else [draw_chart(chart, span)]
    return charts


def _curve(run: Run, metric: str) -> Series:
    return with_start(run) if metric == "eval/accuracy" else run.series(metric)


def _card(run: Run, colour: int) -> str:
    """A run in short: its word, its numbers, and the gravest of what was found."""
    every = findings_of(run)
    verdict, worst = every[0], gravest(every)
    outcome, _ = run_verdict(run)
    facts = [plural(run.span[1] if run.metrics else 0, "step")]
    if outcome.word != "unknown":
        facts.insert(
            0,
            f"accuracy {short_number(outcome.start[1])} → {short_number(outcome.end[1])}, best {short_number(outcome.best[1])}",
        )
    drift, kept = run.series("drift/k3"), run.series("kept_fraction")
    facts += [f"mismatch KL {short_number(drift.median)} (median)"] if len(drift.finite) else []
    facts += [f"kept {percent(kept.median)} (median)"] if len(kept.finite) else []
    said = [
        f'<p><span class="{one.level}"><span class="level">{one.level}</span></span> <b>{escape_html(one.title)}.</b> '
        f"{escape_html(one.sentence)}{try_html(one)}</p>"
        for one in dict.fromkeys((verdict, worst))
    ]
    return (
        f'<article class="run"><h3><i class="s{colour}"></i>{escape_html(run.name)} {word_html(verdict_word(run))}</h3>'
        f'<p class="facts">{escape_html(" · ".join(facts))}</p>{"".join(said)}</article>'
    )


def _differences(runs: Sequence[Run]) -> str:
    differences = differing_settings([run.settings for run in runs])
    if not differences:
        return '<h2 id="settings">Settings that differ</h2><p class="absent">None: the same settings.</p>'
    head = "".join(
        f'<th><i class="s{colour_of(place)}"></i>{escape_html(run.name)}</th>' for place, run in enumerate(runs)
    )
    lines = "".join(
        f'<tr><td class="k">{escape_html(path)}</td>{"".join(f"<td class=k>{escape_html(value)}</td>" for value in values)}</tr>'
        for path, values in differences
    )
    several = (
        f'<p class="absent">{plural(len(differences), "setting")} differ: which of them made the difference, these runs cannot say.</p>'
        if len(differences) > 1
        else ""
    )
    return (
        f'<h2 id="settings">Settings that differ</h2>{several}<div class="wide"><table><tr><th>setting</th>{head}</tr>{lines}'
        "</table></div>"
    )


def differing_settings(settings: Sequence[Mapping[str, object]]) -> list[tuple[str, list[object]]]:
    """The settings in which several runs differ, each with its value in every run; `–` where a run does not have it.

    Corrections that are built differently are one setting each, not a row for every field that the other does not have.
    """
    leaves = [dict(settings_by_path(each)) for each in settings]
    if len({frozenset(path for path in each if path.startswith("correction")) for each in leaves}) > 1:
        leaves = [dict(settings_by_path(_with_rule_in_short(each))) for each in settings]
    paths = dict.fromkeys(path for each in leaves for path in each)
    rows = [(path, [each.get(path, "–") for each in leaves]) for path in paths]
    return [(path, values) for path, values in rows if any(value != values[0] for value in values[1:])]


def _with_rule_in_short(settings: Mapping[str, object]) -> Mapping[str, object]:
    """Settings with the correction by its name, or what it sets on one line where it has none."""
    given = settings.get("correction")
    if not isinstance(given, Mapping):
        return settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        try:
            rule = Correction.from_settings(cast("Mapping[str, object]", given))
        except ConfigError:  # of another version, or edited
            return settings
        name = next((name for name in preset_names() if preset(name) == rule), None)
    return {**settings, "correction": name or json.dumps(rule.settings(), ensure_ascii=False)}
