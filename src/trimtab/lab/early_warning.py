"""Which logged number says beforehand that a run will fall: over all kept cells, chosen on one half and measured on the other.

A signal is a number at each evaluation of a run, worked out from nothing later than that evaluation. Its direction and threshold come
from even seeds, its lead time and ROC area from odd ones; those that predict are written in the form the run report reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trimtab.lab.evidence.pairs import first_fall
from trimtab.lab.results import CURVES, CellResult
from trimtab.lab.statistics.intervals import Interval, roc_area, roc_interval
from trimtab.report.findings.signs import Predictor
from trimtab.report.html import percent, short_number, with_decimals
from trimtab.report.metrics import METRICS
from trimtab.report.series import Series
from trimtab.report.write import write_page

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
        binned = entry.curves.get(curve)
        return Series.of(()) if binned is None else binned.series().finite
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
    points: list[ScoredStep] = []
    for run, entry in enumerate(entries):
        series, fall = signal_series(entry, signal.curve), first_fall(entry)
        for step in entry.evaluated.finite.steps.tolist():
            if step < FIRST or (fall is not None and step >= fall):
                continue
            score = score_at(series, step, signal.growth)
            if math.isfinite(score):
                points.append(ScoredStep(run, step, score, fall is not None and fall <= step + horizon))
    return points


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


HORIZON = 20
"""Steps within which a fall has to show for a score to count as right."""
FALSE = 0.1
"""Share of the runs that stood which may be warned of, where the threshold is chosen."""
REACH = 100
"""Steps before a fall in which a warning counts as one of that fall."""


@dataclass(frozen=True)
class EarlyWarning:
    """How well a signal warns, on the half that chose nothing."""

    signal: WarningSignal
    rises: bool
    """Whether it is high before a fall."""
    area: Interval
    """Under the ROC curve: a fall within `HORIZON` steps or not, evaluation by evaluation."""
    threshold: float
    caught: float
    """Share of the falls with a warning in the `REACH` steps before."""
    lead: float
    """Median steps from the first such warning to the evaluation that showed the fall; NaN where none was caught."""
    false_share: float
    """Share of the runs that stood and were warned of."""
    falls: int
    stood: int


def early_warnings(entries: Sequence[CellResult]) -> list[EarlyWarning]:
    """Every signal, the best area first; nothing where either half lacks a fall or a run that stood."""
    runs = distinct_runs(entries)
    halves = [[each for each in runs if is_odd_seed(each) == odd] for odd in (False, True)]
    if not all(_has_both(half) for half in halves):
        return []
    warnings = [warning for signal in WARNING_SIGNALS if (warning := _early_warning(signal, *halves)) is not None]
    return sorted(warnings, key=lambda each: each.area.estimate, reverse=True)


def _has_both(runs: Sequence[CellResult]) -> bool:
    falls = [fall for each in runs if (fall := first_fall(each)) is not None]
    return len(falls) < len(runs) and any(fall > FIRST for fall in falls)


def _early_warning(
    signal: WarningSignal, chosen_on: Sequence[CellResult], measured_on: Sequence[CellResult]
) -> EarlyWarning | None:
    seen, held_out = (scored_steps(half, signal, HORIZON) for half in (chosen_on, measured_on))
    if not seen or not held_out:
        return None
    direction = roc_area(*_arrays(seen, 1.0)[:2])
    if math.isnan(direction):
        return None
    sign = 1.0 if direction >= 0.5 else -1.0
    threshold = _threshold(chosen_on, seen, sign)
    falls, stood = _warned(measured_on, held_out, sign, threshold)
    leads = [lead for lead in falls if lead is not None]
    return EarlyWarning(
        signal,
        sign > 0,
        roc_interval(*_arrays(held_out, sign)),
        sign * threshold,
        len(leads) / len(falls) if falls else math.nan,
        float(np.median(leads)) if leads else math.nan,
        sum(stood) / len(stood) if stood else math.nan,
        len(falls),
        len(stood),
    )


def _arrays(points: Sequence[ScoredStep], sign: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.array([sign * each.score for each in points]),
        np.array([each.falls for each in points]),
        np.array([each.run for each in points]),
    )


def _threshold(runs: Sequence[CellResult], points: Sequence[ScoredStep], sign: float) -> float:
    """What the highest score of one in ten runs that stood goes over."""
    highest = [
        max((sign * each.score for each in points if each.run == place), default=-math.inf)
        for place, run in enumerate(runs)
        if first_fall(run) is None
    ]
    return float(np.quantile(highest, 1 - FALSE))


def _warned(
    runs: Sequence[CellResult], points: Sequence[ScoredStep], sign: float, threshold: float
) -> tuple[list[int | None], list[bool]]:
    """For each fall the lead of its first warning, None without; for each run that stood whether it was warned of."""
    falls: list[int | None] = []
    stood: list[bool] = []
    for place, run in enumerate(runs):
        alarms = [each.step for each in points if each.run == place and sign * each.score > threshold]
        fall = first_fall(run)
        if fall is None:
            stood.append(bool(alarms))
        elif fall > FIRST:  # an earlier one has no past to warn from
            near = [step for step in alarms if fall - REACH <= step < fall]
            falls.append(fall - min(near) if near else None)
    return falls, stood


WARNING_HEAD = ("signal", "before a fall", "ROC area, held out", "falls warned of", "median lead", "false alarms")


def warning_texts(warning: EarlyWarning) -> tuple[str, ...]:
    """A row, under `WARNING_HEAD`."""
    area = warning.area
    lead = "–" if math.isnan(warning.lead) else f"{warning.lead:.0f} steps"
    return (
        warning.signal.name,
        f"{'over' if warning.rises else 'under'} {_threshold_text(warning)}",
        f"{with_decimals(area.estimate)} [{with_decimals(area.lower)}, {with_decimals(area.upper)}]",
        f"{percent(warning.caught)} of {warning.falls}",
        lead,
        f"{percent(warning.false_share)} of {warning.stood}",
    )


def _threshold_text(warning: EarlyWarning) -> str:
    if warning.signal.growth:
        return f"{short_number(math.exp(min(warning.threshold, 700.0)), 2)} times its past"
    return short_number(warning.threshold, 2)


LEAST_AREA = 0.6
"""A signal goes into the report where the lower bound of its held-out area is above this: 0.5 is a coin."""
REPORTED = ("mismatch", "approx_kl", "ess", "kept")
"""Of entropy and gradient norm a level means nothing in another model: they are not here."""


def predictors_of(warnings: Sequence[EarlyWarning]) -> list[Predictor]:
    """Levels that predict; a growth or a difference of two curves has no bound to draw in one chart."""
    return [
        Predictor(
            metric=CURVES[each.signal.curve][0],
            name=each.signal.label[0].upper() + each.signal.label[1:],
            panel=METRICS[CURVES[each.signal.curve][0]].panel,
            gathered=CURVES[each.signal.curve][1],
            rises=each.rises,
            threshold=_short(each.threshold),
            area=(_short(each.area.estimate), _short(each.area.lower), _short(each.area.upper)),
            caught=_short(each.caught),
            falls=each.falls,
            lead=each.lead,
            false_share=_short(each.false_share),
            stood=each.stood,
        )
        for each in warnings
        if not each.signal.growth and each.signal.curve in REPORTED and each.area.lower > LEAST_AREA and each.caught > 0
    ]


def write_predictors(file: Path, warnings: Sequence[EarlyWarning]) -> None:
    """predictors.json."""
    predictors = [each.model_dump(mode="json") for each in predictors_of(warnings)]
    write_page(file, json.dumps(predictors, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _short(value: float) -> float:
    return float(f"{value:.3g}")
