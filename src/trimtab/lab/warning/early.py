"""Lead time and ROC area of each signal: its direction and threshold from even seeds, its figures from odd ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.lab.evidence.outcome import first_fall
from trimtab.lab.results import CellResult
from trimtab.lab.statistics.interval import Interval
from trimtab.lab.statistics.roc import roc_area, roc_interval
from trimtab.lab.warning.signal import (
    FIRST,
    WARNING_SIGNALS,
    ScoredStep,
    WarningSignal,
    distinct_runs,
    is_odd_seed,
    scored_steps,
)
from trimtab.report.html import percent, short_number, with_decimals

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
    found = [warning for signal in WARNING_SIGNALS if (warning := _early_warning(signal, *halves)) is not None]
    return sorted(found, key=lambda each: each.area.estimate, reverse=True)


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
