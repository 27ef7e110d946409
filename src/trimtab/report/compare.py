"""Several runs on one page: verdicts side by side, curves over each other, and the settings in which they differ."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import numpy as np

from trimtab.config.correction import Correction
from trimtab.config.presets import preset, preset_names
from trimtab.errors import ConfigError, ConfigWarning
from trimtab.report.charts.panels import chart_span
from trimtab.report.draw.chart import Chart, ChartLine
from trimtab.report.draw.figure import DrawnChart, draw_chart, figures_html
from trimtab.report.draw.palette import FIRST_COLOUR, both_rules, rules
from trimtab.report.findings.judged import judged, problems_of, with_start
from trimtab.report.findings.learning import verdict_word
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
    "reward": "eval/reward",
    "rollouts": "rollout/accuracy",
    "rollout-reward": "rollout/reward",
    "mismatch": "drift/k3",
    "kept": "kept_fraction",
    "gradient": "train/grad_norm",
    "entropy": "policy/entropy",
    "staleness": "staleness/oldest_mean",
    "ess": "weight/ess",
    "length": "rollout/length",
    "throughput": "throughput/samples",
}
"""Id and metric of each chart, the most telling first."""
ROW = 3
"""Charts of a row: as many rows are shown as are full."""
MOST_BANDS = 3
"""Runs up to which each accuracy has its interval as a band."""


def comparison(runs: Sequence[Run], out: Path | None = None) -> str:
    """The whole page; runs are told apart by their names. `out`: where it will lie, so that it can link to the runs' reports."""
    data: list[dict[str, Any]] = []
    cards = "".join(_card(run, colour_of(place), out) for place, run in enumerate(runs))
    body = figures_html(compared_charts(runs), data)
    further = max(0, len(runs) - len(SHEET))
    name = ", ".join(run.name for run in runs)
    parts = [
        f'<div class="top"><h1>{escape_html(name)}</h1></div>',
        f'<p class="rule">{escape_html(_common(runs))}</p>',
        f'<div class="runs">{cards}</div>',
        '<h2>Curves</h2><p class="legend"><span>All charts share the steps; point at one to read all.</span></p>',
        f'<div class="charts">{body}</div>',
        _differences(runs),
        END,
    ]
    title = f"{_task(runs[0])}: {name} · trimtab" if runs else "trimtab"
    return chart_page(title, "".join(parts), {"charts": data, "rollouts": []}, both_rules(further), rules(further))


def _task(run: Run) -> str:
    return str(run.setting("task.name", "task"))


def _common(runs: Sequence[Run]) -> str:
    """What the runs are of: task, model, seed, held-out problems and dates, each once where they agree."""
    rows = [
        ("task", [_task(run) for run in runs]),
        ("model", [str(run.setting("model.path", "tiny")) for run in runs]),
        ("seed", [str(run.setting("seed", "?")) for run in runs]),
        ("held-out problems", [f"{problems_of(run):,}" for run in runs]),
        ("begun", [str(run.facts.get("created", "?"))[:10] for run in runs]),
    ]
    said = [f"{name} {', '.join(dict.fromkeys(values))}" for name, values in rows]
    seeds = len({run.setting("seed") for run in runs})
    once = "One seed: what another would do is not seen here." if seeds == 1 else "The runs differ in their seeds too."
    return f"{' · '.join(said)}. {once} trimtab lab repeats a comparison over seeds."


def colour_of(place: int) -> int:
    """The colour of a run by its place."""
    return SHEET[place] if place < len(SHEET) else FIRST_COLOUR + place - len(SHEET)


def compared_charts(runs: Sequence[Run]) -> list[DrawnChart]:
    """One chart per metric that any of the runs has, one line per run."""
    spans = [chart_span(run) for run in runs if run.metrics]
    span = (min(first for first, _ in spans), max(last for _, last in spans)) if spans else (0, 1)
    charts: list[DrawnChart] = []
    graded = any(_differ(run) for run in runs)
    by_reward = any(judged(run).word == "reward" for run in runs)
    order = sorted(CURVES, key=lambda name: "reward" not in name) if by_reward else list(CURVES)
    for name in order if graded else [name for name in order if "reward" not in name]:
        shown = METRICS[CURVES[name]]
        lines = [line for place, run in enumerate(runs) for line in _lines(run, CURVES[name], place, len(runs))]
        banded = any(line.upper is not None for line in lines)
        note = f"{shown.note} Bands: 95 % of each evaluation." if banded else shown.note
        chart = Chart(name, shown.title, note, lines, shown.scale)
        charts += [] if chart.is_empty else [draw_chart(chart, span)]
    return charts[: len(charts) // ROW * ROW] or charts


def _differ(run: Run) -> bool:
    """Whether rewards say anything that accuracies do not."""
    reward, accuracy = run.series("rollout/reward"), run.series("rollout/accuracy")
    return len(reward) > 0 and not np.array_equal(reward.values, accuracy.values)


def _lines(run: Run, metric: str, place: int, many: int) -> list[ChartLine]:
    """A run's curve; that of held-out accuracy with its interval, where few runs are compared."""
    started = metric.startswith("eval/")
    series = with_start(run, metric) if started else run.series(metric)
    colour = colour_of(place)
    line = ChartLine(run.name, series, colour, dots=started)
    if metric != "eval/accuracy" or many > MOST_BANDS:
        return [line]
    low, high = share_band(series, problems_of(run))
    return [ChartLine(f"{run.name}, 95 %", low, colour, upper=high), line]


def share_band(shares: Series, tries: int) -> tuple[Series, Series]:
    """Wilson's 95 % interval of each share of so many tries."""
    # 0.5 of 256: (0.5 + 3.84 / 512 ± 1.96 · √(0.25 / 256 + 3.84 / 4 / 256²)) / (1 + 3.84 / 256) = 0.439 to 0.561.
    z = 1.959964
    middle = shares.values + z**2 / (2 * tries)
    spread = z * np.sqrt(np.clip(shares.values * (1 - shares.values), 0, None) / tries + (z / tries) ** 2 / 4)
    low, high = ((middle + side * spread) / (1 + z**2 / tries) for side in (-1, 1))
    return Series(shares.steps, low), Series(shares.steps, high)


def _card(run: Run, colour: int, out: Path | None) -> str:
    """A run in short: its word, its numbers, the gravest of what was found, and where its report lies."""
    every = findings_of(run)
    verdict, worst = every[0], gravest(every)
    curve = judged(run)
    outcome = curve.verdict
    facts = [plural(run.span[1] if run.metrics else 0, "step")]
    if outcome.word != "unknown":
        facts.insert(
            0,
            f"{curve.word} {short_number(outcome.start[1])} → {short_number(outcome.end[1])}, best {short_number(outcome.best[1])}",
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
        f'<p class="facts">{escape_html(" · ".join(facts))}</p>{"".join(said)}{_report_link(run, out)}</article>'
    )


def _report_link(run: Run, out: Path | None) -> str:
    """A link from the page to the report of a run, where there is one."""
    if out is None or run.path is None or not (run.path / "report.html").is_file():
        return ""
    where = quote(Path(os.path.relpath(run.path / "report.html", out.resolve().parent)).as_posix())
    return f'<p><a href="{escape_html(where)}">Report of {escape_html(run.name)}</a></p>'


def _differences(runs: Sequence[Run]) -> str:
    """The settings that differ, then the code, rows, weights and versions that do."""
    differences = differing_settings([run.settings for run in runs])
    worlds = [run.facts.get("world") for run in runs]
    if all(isinstance(world, Mapping) for world in worlds):
        differences += differing_settings(cast("list[Mapping[str, object]]", [{"run.json": world} for world in worlds]))
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
