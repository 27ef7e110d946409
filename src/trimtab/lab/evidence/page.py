"""claims.html: every claim with its interval, survival curves and what stands beside the verdict; no network, nothing trusted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trimtab.lab.evidence.finding import ClaimFinding
from trimtab.lab.evidence.table import (
    METHOD,
    arm_text,
    beside,
    claim_sentence,
    claim_texts,
    interval_text,
    ordered_findings,
    outcome_text,
    rerun_command,
)
from trimtab.lab.statistics.survival import SurvivalPoint
from trimtab.lab.table import CAUTION
from trimtab.report.draw.axis import SHARE
from trimtab.report.draw.chart import Chart, ChartLine, chart_svg
from trimtab.report.draw.figure import figure_html, interval_svg, paper_style, with_paper
from trimtab.report.draw.palette import rules
from trimtab.report.html import asset, document, escape_html
from trimtab.report.series import Series

_STYLE = {"confirmed": "healthy", "contradicted": "collapsed", "not decided": "so-far"}
"""Words of the page's style that have the colours."""


def claims_html(findings: Sequence[ClaimFinding], about: str, title: str = "trimtab lab: claims") -> str:
    """The whole page; `about` says in one line what was run."""
    ordered = ordered_findings(findings)
    ran = [each for each in ordered if each.decision.seeds]
    parts = [
        f'<div class="top"><h1>{escape_html(title)}</h1></div><p class="rule">{escape_html(about)}</p>',
        f"<p><b>{escape_html(CAUTION)}</b></p><p>{escape_html(METHOD)}</p>",
        _table(ordered),
        *(_claim(each) for each in ran),
        "<footer>Written by trimtab.</footer>",
    ]
    style = asset("page.css") + asset("chart.css") + asset("lab.css", "trimtab.lab")
    return document(title, "".join(parts), style=style, script=asset("paper.js"), data={"paper": paper_style(rules(0))})


def _word(finding: ClaimFinding) -> str:
    outcome = finding.decision.outcome
    style = _STYLE[outcome] if finding.decision.seeds else ""
    return f'<span class="word {style}">{escape_html(outcome_text(finding))}</span>'


def _table(findings: Sequence[ClaimFinding]) -> str:
    head = "".join(
        f"<th>{each}</th>"
        for each in ("claim", "verdict", "interval", "difference", "seeds", "survived", "would decide")
    )
    lines: list[str] = []
    for each in findings:
        name, _, difference, seeds, survived, needed = map(escape_html, claim_texts(each))
        link = f'<a href="#{name}">{name}</a>' if each.decision.seeds else name
        lines.append(
            f'<tr><td title="{escape_html(each.claim.text)}">{link}</td><td>{_word(each)}</td><td>{_interval(each)}</td>'
            f'<td class="n">{difference}</td><td class="n">{seeds}</td><td class="n">{survived}</td><td>{needed}</td></tr>'
        )
    return f'<div class="wide"><table class="cells claims"><tr>{head}</tr>{"".join(lines)}</table></div>'


def _interval(finding: ClaimFinding) -> str:
    found = finding.decision.difference
    if not math.isfinite(found.lower):
        return ""
    return interval_svg(found.estimate, found.lower, found.upper, ends=(-1.0, 1.0), margin=finding.claim.margin)


def _claim(finding: ClaimFinding) -> str:
    claim = finding.claim
    said = "".join(f"<li>{escape_html(each)}</li>" for each in beside(finding))
    return (
        f'<section><h2 id="{escape_html(claim.id)}">{escape_html(claim.id)} {_word(finding)}</h2>'
        f"<p>{escape_html(claim.text)} <i>{escape_html(claim.source)}</i></p>"
        f"<p>{escape_html(claim_sentence(claim))}: <b>{escape_html(interval_text(finding.decision.difference))}</b></p>"
        f'<ul class="remarks">{said}</ul><p><code>{escape_html(rerun_command(claim))}</code></p>'
        f'<div class="charts">{_survival(finding)}</div></section>'
    )


def _survival(finding: ClaimFinding) -> str:
    labels = [arm_text(each) for each in (finding.claim.first, finding.claim.second)]
    lines: list[ChartLine] = []
    for place, (label, points) in enumerate(zip(labels, finding.survival, strict=True)):
        lower, share, upper = (
            step_series(points, [getattr(each, name) for each in points]) for name in ("lower", "share", "upper")
        )
        lines += [ChartLine(label, lower, 1 + place, upper=upper), ChartLine(label, share, 1 + place)]
    last = max((points[-1].step for points in finding.survival if points), default=1)
    chart = Chart(
        f"survival-{finding.claim.id}",
        "Runs that have not fallen",
        "Kaplan–Meier; the band is its 95 % interval. A run has fallen once it is under half of its best so far or under its start.",
        lines,
        SHARE,
    )
    svg, _ = chart_svg(chart, (0, last))
    keys = [(1 + place, label) for place, label in enumerate(labels)]
    shown = "".join(f'<span><i class="s{colour}"></i>{escape_html(label)}</span>' for colour, label in keys)
    return figure_html(chart.id, chart.title, chart.note, shown, with_paper(svg, chart.title, keys))


def step_series(points: Sequence[SurvivalPoint], values: Sequence[float]) -> Series:
    """A curve of steps: each value holds until the step before the next point."""
    pairs: list[tuple[int, float]] = []
    for place, (point, value) in enumerate(zip(points, values, strict=True)):
        if place and point.step > 0:
            pairs.append((point.step - 1, values[place - 1]))
        pairs.append((point.step, value))
    return Series.of(pairs)
