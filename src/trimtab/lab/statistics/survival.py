"""How long runs last when some are still standing at the end: Kaplan and Meier."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from trimtab.errors import InputError
from trimtab.lab.statistics.interval import binomial_interval


@dataclass(frozen=True)
class Lifetime:
    """How long one run was watched, and whether it fell then or was still standing."""

    steps: int
    fell: bool


@dataclass(frozen=True)
class SurvivalPoint:
    """The share still standing from a step on, until the next point."""

    step: int
    share: float
    lower: float
    upper: float
    at_risk: int
    """Runs that stood until then and were still watched."""


def kaplan_meier(lifetimes: Sequence[Lifetime], level: float = 0.95) -> list[SurvivalPoint]:
    """The share standing after each step at which a run fell or ceased to be watched, from step 0.

    Bounds by Greenwood's variance on the scale log(−log S), which keeps them within 0 and 1. That variance is not defined while
    all stand or once none does: there the bounds are Clopper–Pearson's for the runs at the start.
    """
    if not lifetimes:
        raise InputError("kaplan_meier needs one run or more, got none.")
    many = len(lifetimes)
    z = NormalDist().inv_cdf((1 + level) / 2)
    none_fell, all_fell = binomial_interval(many, many, level), binomial_interval(0, many, level)
    points = [SurvivalPoint(0, 1.0, none_fell.lower, 1.0, many)]
    share, variance = 1.0, 0.0
    for step in sorted({each.steps for each in lifetimes}):
        at_risk = sum(each.steps >= step for each in lifetimes)
        fell = sum(each.steps == step and each.fell for each in lifetimes)
        share *= 1 - fell / at_risk
        variance += fell / (at_risk * (at_risk - fell)) if fell < at_risk else 0.0
        if share == 1.0:
            lower, upper = none_fell.lower, 1.0
        elif share == 0.0:
            lower, upper = 0.0, all_fell.upper
        else:
            spread = z * math.sqrt(variance) / abs(math.log(share))
            lower, upper = share ** math.exp(spread), share ** math.exp(-spread)
        points.append(SurvivalPoint(step, share, lower, upper, at_risk))
    return points


def survival_at(points: Sequence[SurvivalPoint], step: int) -> SurvivalPoint:
    """The last point at or before a step."""
    return max((each for each in points if each.step <= step), key=lambda each: each.step)
