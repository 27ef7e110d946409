"""What was compared with which framework, counted while the tests run; `make parity` prints it."""

from __future__ import annotations

from collections import Counter

FAMILIES = ("correction", "loss", "gradient", "advantage", "normalise", "metrics")

COMPARED: Counter[tuple[str, str, str]] = Counter()
"""(framework, family, live or recorded) → how many comparisons passed."""


def count(framework: str, family: str, kind: str, number: int = 1) -> None:
    """Note comparisons that passed."""
    assert family in FAMILIES
    COMPARED[framework, family, kind] += number


def table() -> list[str]:
    """Framework × family, each cell `live + recorded`."""
    frameworks = sorted({framework for framework, _, _ in COMPARED})
    rows = [["", *FAMILIES]]
    rows += [[name, *(_cell({name}, family) for family in FAMILIES)] for name in frameworks]
    rows.append(["all", *(_cell(set(frameworks), family) for family in FAMILIES)])
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def without(*families: str) -> list[tuple[str, str]]:
    """Frameworks and families of which nothing was compared."""
    frameworks = sorted({framework for framework, _, _ in COMPARED})
    return [(name, family) for name in frameworks for family in families if _cell({name}, family) == "–"]


def _cell(frameworks: set[str], family: str) -> str:
    live, recorded = (sum(COMPARED[name, family, kind] for name in frameworks) for kind in ("live", "recorded"))
    return f"{live:,} + {recorded:,}" if live or recorded else "–"
