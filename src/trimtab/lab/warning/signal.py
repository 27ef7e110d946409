"""Signals: a number at each evaluation of a run, worked out from nothing later than that evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.lab.evidence.outcome import first_fall
from trimtab.lab.results import CellResult
from trimtab.report.series import Series

NEAR, BEFORE = 10, 50
"""Steps of the present, and of the past that it is held against."""
FIRST = 20
"""No score before this step: there is no past yet."""
_LEAST = 1e-9


@dataclass(frozen=True)
class WarningSignal:
    """A curve and how it becomes a score."""

    curve: str
    label: str
    growth: bool
    """Whether the score is the present over the past, by factors; else the present itself."""

    @property
    def name(self) -> str:
        """How tables call it."""
        return f"{self.label}, {'growth' if self.growth else 'level'}"


CURVE_LABELS = {
    "mismatch": "mismatch KL",
    "approx_kl": "step KL",
    "grad_norm": "gradient norm",
    "ess": "effective sample size",
    "entropy": "entropy",
    "kept": "kept",
    "preference": "kept of right less kept of wrong",
}
WARNING_SIGNALS = tuple(
    WarningSignal(curve, label, growth)
    for curve, label in CURVE_LABELS.items()
    for growth in ((False,) if curve == "preference" else (False, True))  # a difference about 0 has no factors
)


@dataclass(frozen=True)
class ScoredStep:
    """A score of a run at a step, and whether the run fell soon after."""

    run: int
    step: int
    score: float
    falls: bool


def signal_series(entry: CellResult, curve: str) -> Series:
    """A cell's curve; what it prefers is the difference of two."""
    if curve != "preference":
        found = entry.curves.get(curve)
        return Series.of(()) if found is None else found.series().finite
    right, wrong = (signal_series(entry, name) for name in ("kept_right", "kept_wrong"))
    other = dict(zip(wrong.steps.tolist(), wrong.values.tolist(), strict=True))
    pairs = zip(right.steps.tolist(), right.values.tolist(), strict=True)
    return Series.of((step, value - other[step]) for step, value in pairs if step in other)


def score_at(series: Series, step: int, growth: bool) -> float:
    """The mean over the last `NEAR` steps up to `step`; with growth, the log of it over the median of the `BEFORE` steps before."""
    near = series.within(step - NEAR + 1, step).values
    if not len(near):
        return math.nan
    present = float(near.mean())
    if not growth:
        return present
    past = series.within(step - NEAR - BEFORE + 1, step - NEAR).values
    return math.log(max(present, _LEAST) / max(float(np.median(past)), _LEAST)) if len(past) else math.nan


def scored_steps(entries: Sequence[CellResult], signal: WarningSignal, horizon: int) -> list[ScoredStep]:
    """Every evaluation of every run before its fall, with the score then; `falls` where the fall shows within `horizon` steps."""
    found: list[ScoredStep] = []
    for run, entry in enumerate(entries):
        series, fall = signal_series(entry, signal.curve), first_fall(entry)
        for step in entry.evaluated.finite.steps.tolist():
            if step < FIRST or (fall is not None and step >= fall):
                continue
            score = score_at(series, step, signal.growth)
            if math.isfinite(score):
                found.append(ScoredStep(run, step, score, fall is not None and fall <= step + horizon))
    return found


def distinct_runs(entries: Sequence[CellResult]) -> list[CellResult]:
    """Each run once: corrections that never acted gave the same one under several names, which would count it double."""
    kept: dict[object, CellResult] = {}
    for each in entries:
        if each.status == "done" and len(each.evaluated.finite) > 1:
            kept.setdefault((each.seed, each.accuracy, each.curves.get("grad_norm")), each)
    return list(kept.values())


def is_odd_seed(entry: CellResult) -> bool:
    """Whether a run is held out: cells of one seed share their warm start, so no seed may stand on both sides."""
    return entry.seed % 2 == 1
