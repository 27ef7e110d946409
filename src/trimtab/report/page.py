"""One HTML page from a run: verdict, findings, charts, time, rollouts, settings, events; no network, nothing trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.records.run import trimtab_version
from trimtab.report.charts.panels import ChartSection, chart_sections
from trimtab.report.draw.axis import SHARE
from trimtab.report.draw.chart import Mark
from trimtab.report.draw.figure import figures_html, paper_style
from trimtab.report.findings.finding import RunFinding
from trimtab.report.findings.judged import judged, run_verdict, with_start
from trimtab.report.findings.learning import first_signs, verdict_word
from trimtab.report.findings.table import findings_of
from trimtab.report.html import asset, document, escape_html, plural, short_number
from trimtab.report.metrics import METRICS
from trimtab.report.rollouts import LEGEND, choose_rollouts, rollouts_html
from trimtab.report.run import Run, settings_by_path
from trimtab.report.series import LAST_STEP
from trimtab.report.tokens import tokens

QUIET = ("checkpoint", "evaluation", "eval", "start", "started", "end", "ended", "done", "finished")
"""Kinds of events that are no news; they are listed, not drawn."""
MOST_MARKS = 40
MOST_EVENTS = 500
END = (
    f"<footer>Written by trimtab {trimtab_version()}. What each number is: the page Metrics of its documentation, docs/metrics.md of its "
    'source.</footer><div id="tip" role="tooltip"></div>'
)


def report_html(run: Run) -> str:
    """The whole page."""
    trained = tokens(run)
    marks, data = _marks(run), list[dict[str, Any]]()
    body = "".join(_section(section, data) for section in chart_sections(run, trained, marks))
    shown, rows = rollouts_html(run, choose_rollouts(run, trained))
    parts = [
        _header(run),
        findings_html(findings_of(run)),
        _mark_legend(marks),
        body,
        _rollouts(shown),
        _settings(run),
        _events(run),
        END,
    ]
    return chart_page(f"{run.name} · trimtab", "".join(parts), {"charts": data, "rollouts": rows})


def chart_page(title: str, body: str, data: Mapping[str, Any], further: str = "", further_light: str = "") -> str:
    """A page of charts; `further` styles beside the usual ones, and those of them that saved charts need."""
    return document(
        title,
        body,
        style=asset("page.css") + asset("chart.css") + further,
        script=asset("page.js") + asset("paper.js"),
        data={**data, "paper": paper_style(further_light)},
    )


def _header(run: Run) -> str:
    tiles = "".join(
        f'<div class="tile"><b>{escape_html(value)}</b><span>{escape_html(label)}</span></div>'
        for value, label in _tiles(run)
    )
    return (
        f'<div class="top"><h1>{escape_html(run.name)}</h1>{word_html(verdict_word(run))}</div>'
        f'<p class="rule">{escape_html(_rule(run))}</p><div class="tiles">{tiles}</div>'
    )


def word_html(called: str) -> str:
    """A verdict on its colour."""
    return f'<span class="word {escape_html(called.replace(" ", "-"))}">{escape_html(called)}</span>'


def _tiles(run: Run) -> Iterator[tuple[str, str]]:
    curve = judged(run)
    outcome, held_out = curve.verdict, with_start(run, "eval/reward").finite.values
    if outcome.word != "unknown":
        yield f"{short_number(outcome.start[1])} → {short_number(outcome.end[1])}", f"{curve.word}, start → end"
        yield short_number(outcome.best[1]), f"best {curve.word}, step {outcome.best[0]}"
    if curve.word != "reward" and len(held_out) >= 2 and not np.array_equal(held_out, with_start(run).finite.values):
        yield f"{short_number(held_out[0])} → {short_number(held_out[-1])}", "held-out reward, start → end"
    asked = run.setting("steps")
    yield f"{run.count:,}" + (f" of {asked:,}" if isinstance(asked, int) else ""), "steps"
    clock, steps = run.series("time").finite, run.series("time/step").finite
    if len(clock) or len(steps):
        wall = len(clock) > 0
        yield (
            duration(float(clock.values[-1] if wall else steps.values.sum())),
            "wall time" if wall else "in steps, evaluation apart",
        )
    for metric in ("drift/k3", "kept_fraction", "weight/ess", "staleness/oldest_mean", "throughput/samples"):
        if len(run.series(metric).finite):
            median, shown = run.series(metric).median, METRICS[metric]
            value = f"{short_number(100 * median)} %" if shown.scale == SHARE else short_number(median)
            yield value, f"{shown.word}, median"


def duration(seconds: float) -> str:
    """Seconds up to ten minutes, as the command line counts them; then minutes, then hours."""
    minutes = round(seconds / 60)
    if seconds < 600:
        return f"{short_number(seconds) if seconds < 10 else round(seconds)} s"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _rule(run: Run) -> str:
    """The correction and the main settings in one line."""
    weight: Mapping[str, Any] = run.setting("correction.weight", {})
    gates: Sequence[Mapping[str, Any]] = run.setting("correction.gates", ())
    said = [
        f"{run.setting('correction.policies', '?')}",
        *(
            f"gate {g.get('metric')}/{g.get('level')} [{_side(g.get('lower'))}, {_side(g.get('upper'))}] {g.get('action')}"
            for g in gates
        ),
        f"weight {weight.get('level', 'one')}" + (f" ≤ {short_number(weight['upper'])}" if weight.get("upper") else ""),
        f"loss {run.setting('loss.kind', '?')}",
        f"advantage {run.setting('advantage.kind', '?')}",
        f"max_staleness {run.setting('rollout.max_staleness', '?')}",
        f"rollout {run.setting('rollout.precision', '?')}",
        f"lr {run.setting('learner.lr', '?')}",
        f"{run.setting('learner.minibatches', '?')} minibatches",
        f"seed {run.setting('seed', '?')}",
    ]
    return " · ".join(said)


def _side(bound: float | int | None) -> str:
    return "open" if bound is None else short_number(bound)


def findings_html(findings: Sequence[RunFinding]) -> str:
    """Findings as a list, each with its chart and what to try."""
    items: list[str] = []
    for one in findings:
        link = f' <a href="#{escape_html(one.panel)}">chart ↓</a>' if one.panel else ""
        items.append(
            f'<li class="{one.level}"><span class="level">{one.level}</span><b>{escape_html(one.title)}.</b>'
            f"{escape_html(one.sentence)}{link}{try_html(one)}</li>"
        )
    typed = "What to try is typed after <code>trimtab train RUN/config.yaml</code>."
    told = f'<p class="absent">{typed}</p>' if any(one.advice for one in findings) else ""
    return f'<ol class="findings">{"".join(items)}</ol>{told}'


def try_html(one: RunFinding) -> str:
    """What to try, where a finding has it."""
    if one.advice is None:
        return ""
    return (
        f' <span class="try"><i>try:</i> <code>{escape_html(one.advice.setting)}</code>, then look at '
        f"{escape_html(one.advice.look)}.</span>"
    )


def _marks(run: Run) -> list[Mark]:
    outcome = run_verdict(run)
    news = [event for event in run.events if _step(event.get("step")) and event.get("kind") not in QUIET]
    marks = [
        Mark(int(event["step"]), "event", f"{event.get('kind')}: {str(event.get('message'))[:200]}")
        for event in news[:MOST_MARKS]
    ]
    early = first_signs(run, outcome)
    if early:
        marks.append(Mark(early[0].onset.step, "sign", f"first sign: {early[0].watch.name}"))
    if outcome.fall:
        marks.append(Mark(outcome.fall[1], "fall", f"{judged(run).word} seen to have fallen"))
    return marks


def _section(section: ChartSection, data: list[dict[str, Any]]) -> str:
    told = (
        f'<p class="absent">Not recorded in this run: {escape_html(", ".join(section.absent))}.</p>'
        if section.absent
        else ""
    )
    return f'<h2>{escape_html(section.title)}</h2><div class="charts">{figures_html(section.charts, data)}</div>{told}'


def _mark_legend(marks: Sequence[Mark]) -> str:
    fell = next((mark.text for mark in marks if mark.kind == "fall"), "")
    words = {"fall": fell, "sign": "first sign", "event": "event"}
    kinds = [kind for kind in words if any(mark.kind == kind for mark in marks)]
    items = "".join(
        f'<span><svg viewBox="0 0 26 10"><path class="mark {kind}" d="M0 5H26"/></svg>{words[kind]}</span>'
        for kind in kinds
    )
    return f'<p class="legend"><span>All charts share the steps; point at one to read all.</span>{items}</p>'


def _rollouts(shown: str) -> str:
    if not shown:
        return '<h2 id="rollouts">Rollouts</h2><p class="absent">No rollouts recorded.</p>'
    middle = len(LEGEND) // 2
    levels = [place - middle for place in range(len(LEGEND))]
    scale = "".join(f'<span class="r{level}">{text}</span>' for level, text in zip(levels, LEGEND, strict=True))
    return (
        '<h2 id="rollouts">Rollouts</h2><p class="legend"><span>ratio target / behavior: <span class="scale">'
        f'{scale}</span></span><span><span class="rejected">struck through</span>: rejected by a gate</span>'
        '<span><span class="zeroed">dotted</span>: weight 0</span><span>blue: the learner finds it less likely than the sampler did; '
        f"red: more likely. Point at a token for its numbers.</span></p>{shown}"
    )


def _settings(run: Run) -> str:
    rows = "".join(
        f'<tr><td class="k">{escape_html(key)}</td><td class="k">{escape_html(value)}</td></tr>'
        for key, value in settings_by_path(run.settings)
    )
    return f'<h2 id="settings">Settings and events</h2><details><summary>Resolved configuration</summary><table>{rows}</table></details>'


def _step(value: object) -> str:
    """A step for a narrow column; what is none is left out."""
    return escape_html(value) if isinstance(value, int) and abs(value) <= LAST_STEP else ""


def _event_value(value: object) -> str:
    return short_number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _events(run: Run) -> str:
    if not run.events:
        return '<p class="absent" id="events">No events.</p>'
    rows: list[str] = []
    for event in run.events[:MOST_EVENTS]:
        others = {key: value for key, value in event.items() if key not in ("kind", "message", "step", "time")}
        numbers = ", ".join(f"{key} {_event_value(value)}" for key, value in others.items())
        told = f"{event.get('message', '')}{f'  ({numbers})' if numbers else ''}"
        rows.append(
            f'<tr><td class="n">{_step(event.get("step"))}</td><td>{escape_html(event.get("kind", ""))}</td>'
            f"<td>{escape_html(told[:2000])}</td></tr>"
        )
    more = len(run.events) - MOST_EVENTS
    tail = f'<p class="absent">{plural(more, "further event")} in events.jsonl.</p>' if more > 0 else ""
    return (
        f'<details id="events" open><summary>Events ({len(run.events):,})</summary><table>'
        f'<tr><th class="n">step</th><th class="n">kind</th><th>message</th></tr>'
        f"{''.join(rows)}</table>{tail}</details>"
    )
