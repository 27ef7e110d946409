"""What is doubtful about a correction whichever framework it comes from."""

from __future__ import annotations

import math

from trimtab.config.algebra import Correction, Gate
from trimtab.config.reach import rarely
from trimtab.dialects.dialect import Given
from trimtab.dialects.parts import OFF
from trimtab.dialects.reading import Finding
from trimtab.dialects.same import plainest

TIGHT = 0.002
"""Bounds on a mean log-ratio below this are far tighter than most frameworks use: SkyRL's default is ±0.01."""


def bound_findings(asked: Given, rule: Correction | None) -> list[Finding]:
    """Bounds that cannot fire, hardly ever do, or nearly always do."""
    if rule is None or rule == OFF:
        return []
    key = next((asked.path(label) for label in asked.values), asked.dialect.keys[0].path)
    plain = plainest(rule)
    values = [rule, *plain.gates, *([rule.weight] if rule.weight is not None else [])]
    found = [Finding(key, "surprise", doubt) for value in values for doubt in value.doubts()]
    found += [Finding(key, "note", _tight(gate)) for gate in plain.gates if _is_tight(gate)]
    return found + [Finding(key, "note", wide) for gate in plain.gates if (wide := _wide(gate))]


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
