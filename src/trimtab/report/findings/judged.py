"""The curve that a run is judged by: held-out accuracy, or reward where no answer is ever right; and what it did around a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.report.findings.verdict import (
    Dip,
    Slack,
    Verdict,
    accuracy_slack,
    dips,
    is_lower,
    reward_slack,
    verdict,
)
from trimtab.report.html import short_number
from trimtab.report.metrics import METRICS
from trimtab.report.run import Run
from trimtab.report.series import Series

AFTER = 40
"""Steps after a jump in which a fall counts as its own."""
BEFORE_JUMP = 3
"""Values before a jump whose median says where the curve stood."""


@dataclass(frozen=True, eq=False)
class JudgedCurve:
    """A curve by which a run is judged."""

    metric: str
    series: Series
    """With the value from before the first step, where that is known."""
    floor: float
    """From where its height is measured: 0 for accuracies, the start for rewards."""
    slack: Slack
    problems: int | None = None
    """Problems of each value; None for rewards."""

    @property
    def name(self) -> str:
        """How a sentence calls it, with a capital."""
        return METRICS[self.metric].name

    @property
    def word(self) -> str:
        """Over a number of it: accuracy or reward."""
        return METRICS[self.metric].panel

    @property
    def verdict(self) -> Verdict:
        """What became of it."""
        return verdict(self.series, floor=self.floor, slack=self.slack)

    @property
    def dips(self) -> list[Dip]:
        """Every fall that came back."""
        return dips(self.series, floor=self.floor, slack=self.slack)


@dataclass(frozen=True)
class Around:
    """A judged curve before a step and in the `AFTER` steps from it."""

    before: float
    low: tuple[int, float] | None
    """The lowest value from there on; None where it was not measured in time."""
    fell: bool

    @property
    def text(self) -> str:
        """0.92 before, lowest 0.73 at step 280."""
        if self.low is None:
            return f"not measured in the {AFTER} steps after it"
        return f"{short_number(self.before)} before, lowest {short_number(self.low[1])} at step {self.low[0]}"


def around(curve: JudgedCurve, since: int, step: int) -> Around:
    """The curve around a change that began at one step and was complete at another."""
    before = curve.series.finite.within(-1, since).values[-BEFORE_JUMP:]
    after = curve.series.finite.within(since + 1, step + AFTER)
    usual = float(np.median(before)) if len(before) else float("nan")
    if not len(before) or not len(after):
        return Around(usual, None, fell=False)
    place = int(np.argmin(after.values))
    low = (int(after.steps[place]), float(after.values[place]))
    return Around(usual, low, is_lower(usual, low[1], curve.floor, curve.slack))


def judged(run: Run) -> JudgedCurve:
    """Held-out accuracy where there is one, or that of the rollouts; the rewards where no answer was ever right and they differ."""
    if is_judged_by_reward(run):
        held_out = with_start(run, "eval/reward")
        metric = "eval/reward" if len(held_out.finite) >= 2 else "rollout/reward"
        series = held_out if metric == "eval/reward" else run.series(metric).smooth(5)
        return JudgedCurve(metric, series, float(series.finite.values[0]), reward_slack(series))
    held_out = with_start(run)
    if len(held_out.finite) >= 2:
        problems = problems_of(run)
        return JudgedCurve("eval/accuracy", held_out, 0.0, accuracy_slack(problems), problems)
    batch = int(run.setting("rollout.groups", 16)) * int(run.setting("rollout.samples", 8))
    series = run.series("rollout/accuracy").smooth(5)
    return JudgedCurve("rollout/accuracy", series, 0.0, accuracy_slack(batch), batch)


def run_verdict(run: Run) -> Verdict:
    """What became of the curve that a run is judged by."""
    return judged(run).verdict


def start_event(run: Run) -> Mapping[str, Any]:
    """What was measured before the first step; empty where nothing was."""
    return next((event for event in run.events if event.get("kind") == "start"), {})


def problems_of(run: Run) -> int:
    """Held-out problems: as counted at the start, or as asked for."""
    counted = start_event(run).get("problems")
    return counted if isinstance(counted, int) and counted > 0 else int(run.setting("evaluate.problems", 256))


def with_start(run: Run, metric: str = "eval/accuracy") -> Series:
    """What was evaluated, led by the value that the start event has, from before the first step."""
    held_out = run.series(metric)
    before = start_event(run).get(metric.partition("/")[2])
    if not len(held_out) or not isinstance(before, float):
        return held_out
    pairs = zip(held_out.steps.tolist(), held_out.values.tolist(), strict=True)
    return Series.of([(run.span[0] - 1, before), *pairs])


def never_right(run: Run) -> bool:
    """Whether accuracies were measured and all are 0."""
    values = np.concatenate([with_start(run).finite.values, run.series("rollout/accuracy").finite.values])
    return len(values) > 0 and not bool(values.any())


def is_judged_by_reward(run: Run) -> bool:
    """Whether no answer was ever right and the rewards differ all the same."""
    if not never_right(run):
        return False
    rewards = (with_start(run, "eval/reward").finite.values, run.series("rollout/reward").finite.values)
    return any(len(each) >= 2 and float(np.ptp(each)) > 0 for each in rewards)
