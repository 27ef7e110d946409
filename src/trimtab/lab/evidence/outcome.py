"""What one run is worth in a comparison: its late accuracy, and whether and when it fell."""

from __future__ import annotations

from trimtab.lab.results import CellResult
from trimtab.lab.statistics.survival import Lifetime
from trimtab.report.findings.verdict import late_part, tolerance


def late_accuracy(entry: CellResult) -> float:
    """Mean held-out accuracy over the last third of the steps."""
    return float(late_part(entry.evaluated.finite).values.mean())


def first_fall(entry: CellResult) -> int | None:
    """The first evaluation at which the run had fallen: under half of its best so far, or under its start; None if it never had.

    Each beyond three standard errors of the evaluation. A run that came back has fallen all the same.
    """
    curve = entry.evaluated.finite
    if not len(curve):
        return None
    start = best = float(curve.values[0])
    for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
        best = max(best, value)
        halved = value < best / 2 and best - value > tolerance(best, value, entry.problems)
        if halved or start - value > tolerance(start, value, entry.problems):
            return int(step)
    return None


def lifetime(entry: CellResult) -> Lifetime:
    """How long it stood, for a survival curve."""
    fell = first_fall(entry)
    return Lifetime(entry.steps, False) if fell is None else Lifetime(fell, True)


def stood(entry: CellResult) -> float:
    """1 where it never fell, else 0."""
    return float(first_fall(entry) is None)


def kept_share(entry: CellResult) -> float:
    """The median over its steps of the share of tokens that the gates left."""
    return entry.medians.get("kept", float("nan"))
