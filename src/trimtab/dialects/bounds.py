"""What is doubtful about a correction whichever framework it comes from."""

from __future__ import annotations

import math

from trimtab.config.algebra import Correction, Gate
from trimtab.config.reach import rarely
from trimtab.dialects.dialect import Given
from trimtab.dialects.parts import OFF
from trimtab.dialects.reading import Finding, Level
from trimtab.dialects.same import plainest
from trimtab.errors import ConfigError

TIGHT = 0.002
"""Bounds on a mean log-ratio below this are far tighter than most frameworks use: SkyRL's default is ±0.01."""


def bound_findings(asked: Given, rule: Correction | None) -> list[Finding]:
    """Bounds that cannot fire, hardly ever do, or nearly always do."""
    if rule is None or rule == OFF:
        return []
    found = _doubts(rule)
    return [Finding(_key_of(asked, text), level, text) for level, text in found]


def _doubts(rule: Correction) -> list[tuple[Level, str]]:
    plain = plainest(rule)
    values = [rule, *plain.gates, *([rule.weight] if rule.weight is not None else [])]
    notes = [_tight(gate) for gate in plain.gates if _is_tight(gate)]
    notes += [wide for gate in plain.gates if (wide := _wide(gate))]
    surprises: list[tuple[Level, str]] = [("surprise", doubt) for value in values for doubt in value.doubts()]
    return [*surprises, *(("note", text) for text in notes)]


def _key_of(asked: Given, text: str) -> str:
    """The last key without which the doubt would not be there: bounds stand behind what they bound. Else the first number."""
    own = [key for key in asked.dialect.keys if key.label in asked.values]
    for key in reversed(own):
        if key.part == "correction" and not _is_doubt(asked.without(key.label), text):
            return key.path
    numbers = [key for key in own if key.part == "correction" and isinstance(asked.values[key.label], int | float)]
    return next((key.path for key in (*numbers, *own)), asked.dialect.keys[0].path)


def _is_doubt(asked: Given, text: str) -> bool:
    try:
        rule = asked.dialect.correction_of(asked)
    except (ConfigError, TypeError, ValueError):
        return False
    return rule is not None and text in [doubt for _, doubt in _doubts(rule)]


def _wide(gate: Gate) -> str | None:
    """What `rarely` says, save of a geometric mean, which speaks for itself."""
    return None if gate.metric == "ratio" and gate.agg == "mean" else rarely(gate)


def _is_tight(gate: Gate) -> bool:
    if gate.metric != "ratio" or gate.agg != "mean" or gate.when != "always":
        return False
    bounds = [abs(math.log(bound)) for bound in (gate.lower, gate.upper) if bound is not None]
    return min(bounds, default=1.0) < TIGHT


def _tight(gate: Gate) -> str:
    sides = " to ".join("open" if bound is None else f"{bound:.6g}" for bound in (gate.lower, gate.upper))
    return (
        f"A geometric mean ratio within {sides} turns most sequences away as soon as two engines round differently; others use "
        "0.99 to 1.01, so watch the rejected fraction."
    )
