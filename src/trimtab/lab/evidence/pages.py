"""Verdicts on claims for readers: text, Markdown, and claims.html with intervals and survival curves; no network, nothing trusted."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence

from trimtab.lab.evidence.claim import Arm, Claim
from trimtab.lab.evidence.decide import ClaimFinding
from trimtab.lab.statistics.decision import LEVEL, LOOKS, false_discovery_rates
from trimtab.lab.statistics.intervals import Interval, SurvivalPoint
from trimtab.lab.table import CAUTION, in_code, in_prose, markdown_table
from trimtab.report.draw.axis import SHARE
from trimtab.report.draw.chart import Chart, ChartLine, chart_svg
from trimtab.report.draw.figure import figure_html, interval_svg, paper_style, with_paper
from trimtab.report.draw.palette import rules
from trimtab.report.html import asset, document, escape_html, percent, short_number, with_decimals
from trimtab.report.series import Series

CLAIM_HEAD = (
    "claim",
    "verdict",
    f"difference, {percent(LEVEL)} interval",
    "seeds",
    "q",
    "survived, first / second",
    "would decide",
)
METHOD = (
    f"First arm less second, seed by seed. The {percent(LEVEL)} interval is on each side the wider of Student's t and the studentised "
    "bootstrap with half the error, and exact for survival; a verdict needs it and the exact sign-flip test to agree. The data are looked "
    f"at with {', '.join(map(str, LOOKS[:-1]))} and {LOOKS[-1]} seeds and at no other time: with five looks at {percent(LEVEL)} at most "
    "5 % of the verdicts on one claim are wrong. q counts the other claims (Benjamini and Hochberg): of all verdicts with that q or less, "
    "at most that share is expected to be wrong. What happens to one seed in five may be missing from eight."
)


def claim_texts(finding: ClaimFinding, rate: float) -> tuple[str, ...]:
    """A row, under `CLAIM_HEAD`; `rate` is its false discovery rate among the claims of the table."""
    decision = finding.decision
    return (
        finding.claim.id,
        outcome_text(finding),
        interval_text(decision.difference) if decision.seeds else "–",
        str(decision.seeds) if decision.seeds else "–",
        rate_text(finding, rate),
        survival_text(finding),
        needed_text(finding),
    )


def rates(findings: Sequence[ClaimFinding]) -> list[float]:
    """The false discovery rate of each verdict among these."""
    return false_discovery_rates([each.decision.p for each in findings])


def rate_text(finding: ClaimFinding, rate: float) -> str:
    """0.047; nothing where nothing is decided."""
    return "" if finding.decision.outcome == "not decided" else short_number(rate, 2)


def outcome_text(finding: ClaimFinding) -> str:
    """The verdict, `no gain` with the gain that is ruled out; a claim without a pair is not run."""
    outcome = finding.decision.outcome
    if not finding.decision.seeds:
        return "not run"
    return f"{outcome} of {finding.claim.margin:g}" if outcome in ("no gain", "no loss") else outcome


def interval_text(interval: Interval) -> str:
    """+0.51 [+0.32, +0.66]."""
    if not math.isfinite(interval.lower):
        return signed(interval.estimate)
    return f"{signed(interval.estimate)} [{signed(interval.lower)}, {signed(interval.upper)}]"


def signed(value: float) -> str:
    """A difference with its sign and two decimals."""
    text = with_decimals(abs(value))
    return text if float(text) == 0 else f"{'+' if value > 0 else '−'}{text}"


def survival_text(finding: ClaimFinding) -> str:
    """How many runs of each arm never fell: 6 of 8 / 8 of 8."""
    seeds = len(finding.pairs.seeds)
    ends = [points[-1] for points in finding.survival if points]
    return " / ".join(f"{round(each.share * seeds)} of {seeds}" for each in ends) or "–"


def needed_text(finding: ClaimFinding) -> str:
    """How many seeds would decide it, or why none would."""
    decision = finding.decision
    if decision.outcome != "not decided":
        return ""
    if finding.obstacle is not None or decision.seeds < LOOKS[0]:
        return decision.reason
    return "more than 10,000 seeds" if decision.needed is None else f"about {decision.needed:,} seeds"


def arm_text(arm: Arm) -> str:
    """An arm for a reader: the correction and its scenario."""
    return f"{arm.label} ({arm.scenario})"


def claim_sentence(claim: Claim) -> str:
    """What is compared, in words: `k3-rs (stale) higher than off (stale) in late accuracy`."""
    than = {"higher": "higher than", "lower": "lower than", "same": "the same as"}[claim.expected]
    within = f", within {short_number(claim.margin)}" if claim.expected == "same" else ""
    return f"{arm_text(claim.first)} {than} {arm_text(claim.second)} in {claim.measure}{within}; task {claim.task}"


def rerun_command(claim: Claim) -> str:
    """One command that runs this claim and no other."""
    return f"trimtab lab --decide --claim {shlex.quote(claim.id)}"


def beside(finding: ClaimFinding) -> list[str]:
    """What must stand beside a verdict: why, what the pairs share, faults, and notes on the harness."""
    return [
        f"{outcome_text(finding)}: {finding.decision.reason}",
        f"paired: {finding.pairs.shares}",
        *finding.pairs.faults,
        *finding.notes,
    ]


def claims_markdown(findings: Sequence[ClaimFinding], about: str) -> str:
    """The decided claims first, then the open ones; each with its command."""
    ran = [each for each in findings if each.decision.seeds]
    lines = [[in_code(name), *rest] for name, *rest in verdict_rows(findings)]
    parts = [f"{in_prose(about)}\n", f"{in_prose(METHOD)}\n", markdown_table(CLAIM_HEAD, lines)]
    for each in ordered_findings(ran):
        parts.append(
            f"### {in_code(each.claim.id)}: {outcome_text(each)}\n\n{in_prose(each.claim.text)} "
            f"*{in_prose(each.claim.source)}*\n\n{in_prose(claim_sentence(each.claim))}: "
            f"{interval_text(each.decision.difference)}. Run it: {in_code(rerun_command(each.claim))}.\n"
        )
        parts.append("".join(f"- {in_prose(line)}\n" for line in beside(each)))
    return "\n".join(parts)


def verdict_rows(findings: Sequence[ClaimFinding]) -> list[tuple[str, ...]]:
    """All of them as rows, in the order of the table."""
    ordered = ordered_findings(findings)
    return [claim_texts(each, rate) for each, rate in zip(ordered, rates(ordered), strict=True)]


def ordered_findings(findings: Sequence[ClaimFinding]) -> list[ClaimFinding]:
    """Decided before open, with data before without; else as they stand."""
    return sorted(findings, key=lambda each: (each.decision.outcome == "not decided", not each.decision.seeds))


_STYLE = {"confirmed": "healthy", "contradicted": "collapsed", "no gain": "flat", "no loss": "flat"}
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
    style = _STYLE.get(outcome, "so-far") if finding.decision.seeds else ""
    return f'<span class="word {style}">{escape_html(outcome_text(finding))}</span>'


def _table(findings: Sequence[ClaimFinding]) -> str:
    head = "".join(
        f"<th>{each}</th>"
        for each in ("claim", "verdict", "interval", "difference", "seeds", "q", "survived", "would decide")
    )
    lines: list[str] = []
    for each, row in zip(findings, verdict_rows(findings), strict=True):
        name, _, difference, seeds, rate, survived, needed = map(escape_html, row)
        link = f'<a href="#{name}">{name}</a>' if each.decision.seeds else name
        lines.append(
            f'<tr><td title="{escape_html(each.claim.text)}">{link}</td><td>{_word(each)}</td><td>{_interval(each)}</td>'
            f'<td class="n">{difference}</td><td class="n">{seeds}</td><td class="n">{rate}</td>'
            f'<td class="n">{survived}</td><td>{needed}</td></tr>'
        )
    return f'<div class="wide"><table class="cells claims"><tr>{head}</tr>{"".join(lines)}</table></div>'


def _interval(finding: ClaimFinding) -> str:
    difference = finding.decision.difference
    if not math.isfinite(difference.lower):
        return ""
    return interval_svg(
        difference.estimate, difference.lower, difference.upper, ends=(-1.0, 1.0), margin=finding.claim.margin
    )


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
        "The band is the 95 % interval of each share (Clopper–Pearson). A run has fallen once it is under half of its best so far or "
        "under its start.",
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
