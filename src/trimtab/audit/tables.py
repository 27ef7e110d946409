"""An audit as rows of text, for a terminal, a Markdown page and JSON; nothing here is escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from trimtab.audit.audit import Audit
from trimtab.audit.gap import Gap
from trimtab.audit.parity import ParityResult, parity_of
from trimtab.audit.whatif import RuleOutcome
from trimtab.report.html import percent, short_number

CAUSE_HEADS = ("cause", "verdict", "share of gap", "evidence")
RULE_HEADS = (
    "rule",
    "kept",
    "sequences",
    "of right",
    "of wrong",
    "net advantage",
    "short",
    "long",
    "weight",
    "ess",
    "step",
    "keeps 99 / 90 / 50 % at",
)
NARROW = ("rule", "kept", "of right", "of wrong", "short", "long", "ess", "step")
"""Those that fit a narrow terminal; pages, Markdown and pipes have all."""
NONE = "–"
"""A value that is not known."""


def facts(audit: Audit) -> list[tuple[str, str]]:
    """The batch in a few numbers."""
    batch, gap = audit.batch, audit.gap
    files = batch.origin.files
    twice = second_scoring(gap)
    again = (
        twice
        and f"k3 {short_number(twice.k3)} from the first, {percent(twice.outside)} of the tokens outside [0.9, 1.1]"
    )
    return [
        (
            "from",
            f"{batch.origin.framework}: {files[0] if files else 'memory'}{f' and {len(files) - 1} more' if len(files) > 1 else ''}",
        ),
        ("sequences", f"{len(batch):,} with {len(gap):,} trained tokens that have both log-probs"),
        ("compared", f"{gap.target} with behavior"),
        ("gap", f"mean k3 {short_number(gap.k3)}, root mean square of ℓ {short_number(gap.rms)}"),
        *([("scored again", again)] if again else []),
        ("unexplained", percent(audit.unexplained) if audit.unexplained > 5e-4 else "nothing"),
    ]


def second_scoring(gap: Gap) -> ParityResult | None:
    """How far a second scoring of the trainer's is from its first; None without one."""
    if gap.second is None:
        return None
    return parity_of(gap.scored, gap.second, np.ones(len(gap), bool))


def cause_rows(audit: Audit) -> list[tuple[str, str, str, str]]:
    """A row per cause, as `CAUSE_HEADS`."""
    rows: list[tuple[str, str, str, str]] = []
    for step in audit.steps:
        shown = step.verdict in ("found", "suspected") and step.share is not None
        evidence = step.statistic if not step.lacks else f"{step.statistic} Needs: {step.lacks}."
        if step.verdict in ("found", "suspected"):
            evidence = f"{evidence} {step.remedy}"
        rows.append((step.cause.title, step.verdict, percent(step.share or 0.0) if shown else "", evidence))
    return rows


def rule_table(audit: Audit, *, few: bool = False) -> tuple[list[str], list[list[str]]]:
    """Head and rows of what each rule would do; a column that no rule has a value for is left out. `few`: for a narrow terminal."""
    rows = [rule_row(each) for each in audit.rules.outcomes]
    shown = [
        place
        for place, name in enumerate(RULE_HEADS)
        if (not few or name in NARROW) and (not rows or any(row[place] != NONE for row in rows))
    ]
    return [RULE_HEADS[place] for place in shown], [[row[place] for place in shown] for row in rows]


def rule_row(each: RuleOutcome) -> tuple[str, ...]:
    """A rule, as `RULE_HEADS`."""

    def share(value: float | None) -> str:
        return NONE if value is None else percent(value)

    keeping = [NONE] if not each.curves else [short_number(value) for value in each.curves[0].keeping.values()]
    return (
        each.label,
        share(each.kept),
        share(each.sequences),
        share(each.right),
        share(each.wrong),
        NONE if each.net_advantage is None else short_number(each.net_advantage),
        share(each.short),
        share(each.long),
        short_number(each.weight),
        share(each.ess),
        f"× {short_number(each.step)}",
        " / ".join(keeping),
    )


def markdown_of(audit: Audit) -> str:
    """The audit as Markdown."""
    parts = [
        "# trimtab audit",
        "",
        *(f"- **{name}**: {_cell(value)}" for name, value in facts(audit)),
        "",
        f"**{_cell(audit.advice.title)}.** {_cell(' '.join(audit.advice.reasons))}",
        "",
        "## Causes",
        "",
        *_table(CAUSE_HEADS, cause_rows(audit)),
        "",
        "## What each rule would do",
        "",
        *_table(*rule_table(audit)),
        "",
        *(f"- {_cell(note)}" for note in (*audit.batch.origin.notes, *audit.rules.left_out)),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{' --- |' * len(head)}",
        *(f"| {' | '.join(map(_cell, row))} |" for row in rows),
    ]


def _cell(text: str) -> str:
    """Text of others in a table: no column, no tag, no link of its own."""
    for sign in "\\|<>[]`*_":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def json_of(audit: Audit) -> dict[str, Any]:
    """The audit for machines; what is no number is null."""
    gap, batch = audit.gap, audit.batch
    return _finite(
        {
            "schema": 1,
            "origin": asdict(batch.origin),
            "sequences": len(batch),
            "tokens": len(gap),
            "missing": gap.missing,
            "compared": [gap.target, "behavior"],
            "k3": gap.k3,
            "rms": gap.rms,
            "scored_again": None if (twice := second_scoring(gap)) is None else asdict(twice),
            "unexplained": audit.unexplained,
            "causes": [
                {
                    "cause": step.cause.name,
                    "title": step.cause.title,
                    "verdict": step.verdict,
                    "share": step.share,
                    "statistic": step.statistic,
                    "reference": step.cause.reference,
                    "remedy": step.remedy,
                    "lacks": step.lacks,
                }
                for step in audit.steps
            ],
            "rules": [_rule_json(each) for each in audit.rules.outcomes],
            "agreement": audit.rules.agreement.tolist(),
            "left_out": list(audit.rules.left_out),
            "advice": asdict(audit.advice),
        }
    )


def _rule_json(each: RuleOutcome) -> dict[str, Any]:
    found = {name: value for name, value in vars(each).items() if name not in ("correction", "curves")}
    return found | {"curves": [asdict(curve) for curve in each.curves], "correction": each.correction.settings()}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return None if isinstance(value, float) and not math.isfinite(value) else value
