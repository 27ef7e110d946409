"""One HTML page from a run: verdict, findings, charts, time, rollouts, settings, events; no network, nothing trusted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from trimtab.report.bars import BarChart, bars_svg
from trimtab.report.chart import Chart, Mark, chart_svg
from trimtab.report.choice import chosen
from trimtab.report.classes import class_charts, time_chart
from trimtab.report.findings import findings, word
from trimtab.report.learning import first_signs, run_verdict
from trimtab.report.panels import SECTIONS, gate_charts
from trimtab.report.rollouts import LEGEND, rollouts_html
from trimtab.report.run import LAST_STEP, Run
from trimtab.report.shell import asset, document, figure
from trimtab.report.text import escaped, number, plural
from trimtab.report.tokens import Tokens, tokens
from trimtab.report.whatif import whatif_charts

QUIET = ("checkpoint", "evaluation", "eval", "start", "started", "end", "ended", "done", "finished")
"""Kinds of events that are no news; they are listed, not drawn."""
MOST_MARKS = 40
MOST_EVENTS = 500


def html(run: Run) -> str:
    """The whole page."""
    found = tokens(run)
    body, charts = _charts(run, found)
    shown, rows = rollouts_html(run, chosen(run, found))
    parts = [
        _header(run),
        _findings(run),
        body,
        _rollouts(shown),
        _settings(run),
        _events(run),
        '<footer>Written by trimtab. What each number is: docs/metrics.md.</footer><div id="tip" role="tooltip"></div>',
    ]
    return document(
        f"{run.name} · trimtab",
        "".join(parts),
        style=asset("page.css"),
        script=asset("page.js"),
        data={"charts": charts, "rollouts": rows},
    )


def _header(run: Run) -> str:
    tiles = "".join(
        f'<div class="tile"><b>{escaped(value)}</b><span>{escaped(label)}</span></div>' for value, label in _tiles(run)
    )
    called = word(run)
    return (
        f'<div class="top"><h1>{escaped(run.name)}</h1><span class="word {escaped(called)}">{escaped(called)}</span></div>'
        f'<p class="rule">{escaped(_rule(run))}</p><div class="tiles">{tiles}</div>'
    )


def _tiles(run: Run) -> Iterator[tuple[str, str]]:
    found, _ = run_verdict(run)
    if found.word != "unknown":
        yield f"{found.start[1]:.2f} → {found.end[1]:.2f}", "accuracy, start → end"
        yield f"{found.best[1]:.2f}", f"best accuracy, step {found.best[0]}"
    asked = run.setting("steps")
    yield f"{run.count:,}" + (f" of {asked:,}" if isinstance(asked, int) else ""), "steps"
    clock, steps = run.series("time").finite, run.series("time/step").finite
    if len(clock) or len(steps):
        yield _duration(float(clock.values[-1] if len(clock) else steps.values.sum())), "wall time"
    for metric, label, scale, unit in (
        ("drift/k3", "mismatch KL, median", 1, ""),
        ("kept_fraction", "kept, median", 100, " %"),
        ("weight/ess", "ESS, median", 100, " %"),
        ("staleness/oldest_mean", "staleness, median", 1, ""),
        ("throughput/samples", "samples/s, median", 1, ""),
    ):
        if len(run.series(metric).finite):
            yield f"{number(scale * run.series(metric).median)}{unit}", label


def _duration(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return (
        f"{hours} h {rest // 60} min"
        if hours
        else (f"{rest // 60} min {rest % 60} s" if rest >= 60 else f"{number(seconds)} s")
    )


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
        f"weight {weight.get('level', '?')}" + (f" ≤ {number(weight['upper'])}" if weight.get("upper") else ""),
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
    return "open" if bound is None else number(bound)


def _findings(run: Run) -> str:
    items: list[str] = []
    for found in findings(run):
        link = f' <a href="#{escaped(found.panel)}">chart ↓</a>' if found.panel else ""
        items.append(
            f'<li class="{found.level}"><span class="level">{found.level}</span><b>{escaped(found.title)}.</b>'
            f"{escaped(found.sentence)}{link}</li>"
        )
    return f'<ol class="findings">{"".join(items)}</ol>'


def _marks(run: Run) -> list[Mark]:
    found, _ = run_verdict(run)
    news = [event for event in run.events if _step(event.get("step")) and event.get("kind") not in QUIET]
    marks = [
        Mark(int(event["step"]), "event", f"{event.get('kind')}: {str(event.get('message'))[:200]}")
        for event in news[:MOST_MARKS]
    ]
    early = first_signs(run, found)
    if early:
        marks.append(Mark(early[0].onset.step, "sign", f"first sign: {early[0].watch.name}"))
    if found.fall:
        marks.append(Mark(found.fall[1], "fall", "accuracy seen to have fallen"))
    return marks


def _charts(run: Run, found: Tokens | None) -> tuple[str, list[dict[str, Any]]]:
    marks = _marks(run)
    extra: dict[str, Sequence[Chart | BarChart]] = {
        "policies": list(class_charts(run, found)),
        "correction": [*gate_charts(run), *whatif_charts(run, found)],
    }
    parts: list[str] = [_mark_legend(marks)]
    data: list[dict[str, Any]] = []
    for name, title, panels in SECTIONS:
        charts = [*(panel.chart(run) for panel in panels), *extra.get(name, ())]
        drawn = [chart for chart in charts if isinstance(chart, BarChart) or not chart.is_empty]
        absent = [chart.title for chart in charts if isinstance(chart, Chart) and chart.is_empty]
        time = time_chart(run) if name == "machine" else None
        parts.append(f'<h2>{escaped(title)}</h2><div class="charts">{_bar_figure(time) if time else ""}')
        for chart in drawn:
            if isinstance(chart, BarChart):
                parts.append(_bar_figure(chart))
                continue
            svg, readable = chart_svg(chart, run.span, marks)
            parts.append(figure(chart.id, chart.title, chart.note, _keys(chart), svg, len(data)))
            data.append(readable)
        parts.append("</div>")
        if absent:
            parts.append(f'<p class="absent">Not recorded in this run: {escaped(", ".join(absent))}.</p>')
    return "".join(parts), data


def _mark_legend(marks: Sequence[Mark]) -> str:
    words = {"fall": "accuracy seen to have fallen", "sign": "first sign", "event": "event"}
    kinds = [kind for kind in words if any(mark.kind == kind for mark in marks)]
    items = "".join(
        f'<span><svg viewBox="0 0 26 10"><path class="mark {kind}" d="M0 5H26"/></svg>{words[kind]}</span>'
        for kind in kinds
    )
    return f'<p class="legend"><span>All charts share the steps; point at one to read all.</span>{items}</p>'


def _keys(chart: Chart) -> str:
    items: list[str] = []
    for line in chart.lines:
        part = line.series.finite
        if not len(part):
            continue
        last = number(float(part.values[-1]))
        if line.upper is not None and len(line.upper.finite):
            last += f" to {number(float(line.upper.finite.values[-1]))}"
        items.append(f'<span><i class="s{line.colour}"></i>{escaped(line.label)}<var>{escaped(last)}</var></span>')
    return "".join(items)


def _bar_figure(chart: BarChart) -> str:
    keys = "".join(f'<span><i class="s{bar.colour}"></i>{escaped(bar.label)}</span>' for bar in chart.bars)
    return figure(chart.id, chart.title, chart.note, keys, bars_svg(chart))


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
        f'<tr><td class="k">{escaped(key)}</td><td class="k">{escaped(value)}</td></tr>'
        for key, value in _flat(run.settings)
    )
    return f'<h2 id="settings">Settings and events</h2><details><summary>Resolved configuration</summary><table>{rows}</table></details>'


def _flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Leaves by dotted path."""
    if isinstance(value, Mapping) and value:
        for key, inner in cast("Mapping[object, object]", value).items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(
        isinstance(inner, (Mapping, list, tuple)) for inner in cast("Sequence[object]", value)
    ):
        for place, inner in enumerate(cast("Sequence[object]", value)):
            yield from _flat(inner, f"{path}[{place}]")
    else:
        yield path, "null" if value is None else value


def _step(value: object) -> str:
    """A step for a narrow column; what is none is left out."""
    return escaped(value) if isinstance(value, int) and abs(value) <= LAST_STEP else ""


def _events(run: Run) -> str:
    if not run.events:
        return '<p class="absent" id="events">No events.</p>'
    rows: list[str] = []
    for event in run.events[:MOST_EVENTS]:
        others = {key: value for key, value in event.items() if key not in ("kind", "message", "step", "time")}
        told = f"{event.get('message', '')}{f'  {others}' if others else ''}"
        rows.append(
            f'<tr><td class="n">{_step(event.get("step"))}</td><td>{escaped(event.get("kind", ""))}</td>'
            f"<td>{escaped(told[:2000])}</td></tr>"
        )
    more = len(run.events) - MOST_EVENTS
    tail = f'<p class="absent">{plural(more, "further event")} in events.jsonl.</p>' if more > 0 else ""
    return (
        f'<details id="events" open><summary>Events ({len(run.events):,})</summary><table>'
        f'<tr><th class="n">step</th><th>kind</th><th>message</th></tr>'
        f"{''.join(rows)}</table>{tail}</details>"
    )
