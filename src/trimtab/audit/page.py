"""One HTML page from an audit: advice, causes, rules, where the gap sits, the worst sequences; no network, nothing trusted."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.audit.audit import Audit
from trimtab.audit.charts import gap_charts, keep_charts, share_chart
from trimtab.audit.tables import facts, rule_table
from trimtab.report.draw.figure import draw_chart, figures_html
from trimtab.report.html import asset, escape_html, percent, short_number
from trimtab.report.page import chart_page
from trimtab.report.rollouts import LEGEND, response_html, token_facts

WORST = 8
"""Sequences shown token by token."""


def audit_html(audit: Audit, title: str = "trimtab audit") -> str:
    """The whole page."""
    data: list[dict[str, Any]] = []
    charts = [draw_chart(chart, (0, 1)) for chart in gap_charts(audit.gap)]
    if audit.with_verdict("found"):
        charts.insert(0, draw_chart(share_chart(audit), (0, 1)))
    kept = [draw_chart(chart, (0, 1)) for chart in keep_charts(audit)]
    cards, rows = _worst(audit)
    parts = [
        _header(audit, title),
        _causes(audit),
        f'<h2 id="gap">Where the gap sits</h2><div class="charts">{figures_html(charts, data)}</div>',
        _rules(audit),
        f'<h2 id="thresholds">Other thresholds</h2><div class="charts">{figures_html(kept, data)}</div>'
        if kept
        else "",
        cards,
        _notes(audit),
        '<footer>Written by trimtab. What each cause means: docs/audit.md.</footer><div id="tip" role="tooltip"></div>',
    ]
    return chart_page(
        title, "".join(parts), {"charts": data, "rollouts": rows}, further=asset("audit.css", "trimtab.audit")
    )


def _header(audit: Audit, title: str) -> str:
    found = audit.with_verdict("found")
    word, called = ("found", found[0].cause.title) if found else ("ruled-out", "no cause found")
    gap = audit.gap
    tiles = [
        (short_number(gap.k3), "mean k3"),
        (short_number(gap.rms), "root mean square of ℓ"),
        (
            percent(float(((gap.log_r < np.log(0.9)) | (gap.log_r > np.log(1.1))).mean())) if len(gap) else "–",
            "of tokens outside [0.9, 1.1]",
        ),
        (f"{len(gap):,}", "trained tokens"),
        (f"{len(audit.batch):,}", "sequences"),
    ]
    shown = "".join(
        f'<div class="tile"><b>{escape_html(value)}</b><span>{escape_html(label)}</span></div>'
        for value, label in tiles
    )
    origin = " · ".join(f"{name} {value}" for name, value in facts(audit)[:1] + facts(audit)[2:3])
    reasons = "".join(f'<li class="note">{escape_html(each)}</li>' for each in audit.advice.reasons)
    return (
        f'<div class="top"><h1>{escape_html(title)}</h1><span class="word {word}">{escape_html(called)}</span></div>'
        f'<p class="rule">{escape_html(origin)}</p><div class="tiles">{shown}</div>'
        f'<h2 id="advice">{escape_html(audit.advice.title)}</h2><ol class="findings">{reasons}</ol>'
    )


def _causes(audit: Audit) -> str:
    rows: list[str] = []
    for step in audit.steps:
        quiet = step.verdict in ("ruled out", "inconclusive")
        share = (
            ""
            if quiet or step.share is None
            else f'<meter min="0" max="1" value="{step.share:.3f}"></meter>{escape_html(percent(step.share))}'
        )
        aside = f"Usual: {step.cause.reference}" + (f" Needs: {step.lacks}." if step.lacks else "")
        remedy = "" if quiet else f"<p><b>{escape_html(step.remedy)}</b></p>"
        rows.append(
            f"<tr{' class=quiet' if quiet else ''}><td>{escape_html(step.cause.title)}</td>"
            f'<td><span class="word {step.verdict.replace(" ", "-")}">{escape_html(step.verdict)}</span></td><td class="n">{share}</td>'
            f'<td>{remedy}<p>{escape_html(step.statistic)}</p><p class="aside">{escape_html(aside)}</p></td></tr>'
        )
    return (
        '<h2 id="causes">Causes</h2><p class="legend"><span>In this order, as causes hide each other: each is tested on the gap that those '
        'above leave.</span></p><table class="causes"><tr><th>cause</th><th>verdict</th><th>share of gap</th><th>evidence</th></tr>'
        f"{''.join(rows)}</table>"
    )


def _rules(audit: Audit) -> str:
    names, table = rule_table(audit)
    head = "".join(f"<th>{escape_html(each)}</th>" for each in names)
    rows: list[str] = []
    for each, row in zip(audit.rules.outcomes, table, strict=True):
        cells = "".join(f'<td class="n">{escape_html(cell)}</td>' for cell in row)
        rows.append(f"<tr{' class=advised' if each.label == audit.advice.rule else ''}>{cells}</tr>")
    return (
        '<h2 id="rules">What each rule would do</h2><p class="legend"><span>Shares of trained tokens. short, long: share kept in the '
        "shortest and longest third of the sequences. step: the size of the step against that without a rule.</span></p>"
        f'<div class="wide"><table class="rules"><tr>{head}</tr>{"".join(rows)}</table></div>{_agreement(audit)}'
    )


def _agreement(audit: Audit) -> str:
    names = [each.label for each in audit.rules.outcomes]
    head = "".join(f"<th>{escape_html(name)}</th>" for name in ("", *names))
    rows = "".join(
        f"<tr><td>{escape_html(name)}</td>{''.join(f'<td class=n>{escape_html(percent(float(share)))}</td>' for share in shares)}</tr>"
        for name, shares in zip(names, audit.rules.agreement, strict=True)
    )
    return (
        "<details><summary>Agreement: share of tokens that two rules both keep or both drop</summary>"
        f'<div class="wide"><table class="rules"><tr>{head}</tr>{rows}</table></div></details>'
    )


def _worst(audit: Audit) -> tuple[str, list[dict[str, Any]]]:
    """The sequences furthest apart, token by token, and their numbers for the page's script."""
    gap = audit.gap
    if not gap.is_open:
        return "", []
    count = np.bincount(gap.sequence)
    mean = np.bincount(gap.sequence, gap.k2) / np.maximum(count, 1)
    order = [int(each) for each in np.argsort(-mean, kind="stable")[:WORST] if count[each]]
    cards: list[str] = []
    rows: list[dict[str, Any]] = []
    for place, index in enumerate(order):
        row = _row(audit, index)
        token_numbers = token_facts(row, gap.target)
        source = "" if audit.batch.source is None else f" · {audit.batch.source[index]}"
        reward = "" if audit.batch.reward is None else f" · reward {short_number(float(audit.batch.reward[index]))}"
        heading = f"sequence {index} · {count[index]} trained tokens · mean k2 {short_number(float(mean[index]))}{reward}{source}"
        text = (
            ""
            if audit.batch.text is None
            else f'<pre class="prompt">{escape_html(audit.batch.text[index][:2000])}</pre>'
        )
        cards.append(
            f'<article class="rollout"><header>{escape_html(heading)}</header>{text}'
            f"{response_html(row, token_numbers, place, None, bare=True)}</article>"
        )
        rows.append({"target": gap.target, **token_numbers})
    middle = len(LEGEND) // 2
    scale = "".join(f'<span class="r{place - middle}">{text}</span>' for place, text in enumerate(LEGEND))
    head = (
        '<h2 id="worst">Sequences with the largest gap</h2><p class="legend"><span>ratio trainer / sampler: <span class="scale">'
        f"{scale}</span></span><span>grey: not trained. Point at a token for its numbers.</span></p>"
    )
    return f'{head}<div class="cards">{"".join(cards)}</div>', rows


def _row(audit: Audit, index: int) -> dict[str, Any]:
    """A sequence as the report's cards take it."""
    batch = audit.batch
    span = slice(int(batch.offsets[index]), int(batch.offsets[index + 1]))
    count = span.stop - span.start
    row: dict[str, Any] = {"mask": batch.trained[span].tolist(), "kept": [True] * count}
    row["tokens"] = list(range(count)) if batch.tokens is None else batch.tokens[span].tolist()
    for name in ("behavior", "proximal", "current", "advantage", "versions"):
        if (values := getattr(batch, name)) is not None:
            row[name] = values[span].tolist()
    row["version"] = None if batch.learner_version is None else int(batch.learner_version[index])
    return row


def _notes(audit: Audit) -> str:
    notes = [*audit.batch.origin.notes, *audit.rules.left_out]
    items = "".join(f"<li>{escape_html(note)}</li>" for note in notes)
    return f"<h2>Notes</h2><ul>{items}</ul>" if notes else ""
