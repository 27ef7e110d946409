"""Accuracy curves as runs of the toy task gave them, and books made of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from trimtab.lab.results import CellResult, LabResults, binned_curve
from trimtab.report.series import Series

CONTROL = [(0, 0.31), (40, 0.62), (80, 0.85), (120, 0.91), (160, 0.94), (200, 0.95), (240, 0.94), (280, 0.96)]
CONTROL += [(300, 0.95), (320, 0.95), (340, 0.94), (360, 0.95), (380, 0.96), (400, 0.95)]

LATE_FALL = [(0, 0.31), (100, 0.8), (200, 0.93), (240, 0.96), (270, 0.97), (280, 0.97), (290, 0.38), (300, 0.05)]
"""geo-rs ±10 %, seed 1, stale: 0.97 at 280, 0.38 at 290, 0.05 at 300; the mean of the last two of twenty hid it."""
FROZEN = [(step, 0.31) for step in range(0, 121, 20)]
"""k2-rs on int3: nothing kept, nothing learned."""
DIPPED = [(0, 0.31), (100, 0.8), (200, 0.93), (260, 0.95), (300, 0.1), (340, 0.7), (380, 0.94), (400, 0.95)]
"""seq-tis, seed 2, stale, made deeper: fell and came back."""
PUSHED_DOWN = [(0, 0.31), (20, 0.29), (40, 0.22), (60, 0.12), (80, 0.1), (100, 0.09), (120, 0.08)]
"""geo-rs ±1 % on int4."""
UNDER_START = [(0, 0.31), (40, 0.28), (80, 0.2), (120, 0.18), (160, 0.17)]
"""Above half of its best, and worse than before it began."""
DEGRADED = [(0, 0.31), (80, 0.6), (160, 0.72), (240, 0.66), (320, 0.71), (400, 0.68)]
"""token-tis, stale, long."""
HEALTHY = [(0, 0.31), (80, 0.7), (160, 0.9), (240, 0.93), (280, 0.85), (320, 0.9), (360, 0.92), (400, 0.93)]
"""k2-rs, stale, long: late lowest 0.85 and back."""


def series(pairs: Sequence[tuple[int, float]]) -> Series:
    return Series.of(pairs)


def entry(scenario: str, correction: str, seed: int, pairs: Sequence[tuple[int, float]], **changes: Any) -> CellResult:
    """A finished cell with this accuracy and level curves."""
    steps = pairs[-1][0]
    level = {"mismatch": 0.01, "approx_kl": 0.001, "grad_norm": 0.6, "kept": 1.0, "ess": 1.0} | changes.pop("level", {})
    made = {name: values(found, steps) for name, found in level.items()}
    given: dict[str, Any] = {
        "scenario": scenario,
        "correction": correction,
        "seed": seed,
        "name": f"{scenario}--{correction}--seed-{seed}",
        "fingerprint": "f",
        "status": "done",
        "steps": steps,
        "problems": 256,
        "accuracy": tuple(pairs),
        "curves": {name: binned_curve(found, steps, "max") for name, found in made.items()},
        "medians": {name: found.median for name, found in made.items()},
        "most": {name: float(found.values.max()) for name, found in made.items()},
    }
    return CellResult(**(given | changes))


def values(level: float | tuple[float, float], steps: int) -> Series:
    """A level curve, or one that rises from the first to the second number, by equal factors."""
    first, last = level if isinstance(level, tuple) else (level, level)
    rate = 0.0 if first == last else math.log(last / first) / max(steps - 1, 1)
    return Series.of((step, first * math.exp(rate * step)) for step in range(steps))


def book(*entries: CellResult, steps: int = 400) -> LabResults:
    names = dict.fromkeys(each.scenario for each in entries)
    return LabResults(
        trimtab="0",
        steps=steps,
        seeds=tuple(sorted({each.seed for each in entries})),
        base={},
        scenarios={name: f"What {name} means." for name in names},
        corrections={each.correction: {} for each in entries},
        planned=len(entries),
        entries=entries,
    ).with_verdicts()
