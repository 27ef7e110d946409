"""Early signs: which curve broke away first before the accuracy fell; and levels whose reliability as a warning was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from pydantic import Field

from trimtab.config.base import Config
from trimtab.config.safe_yaml import json_data
from trimtab.report.findings.finding import Remedy
from trimtab.report.html import asset, percent, short_number, with_decimals
from trimtab.report.metrics import METRICS
from trimtab.report.run import Run
from trimtab.report.series import Onset, Series, onsets


@dataclass(frozen=True)
class WatchedCurve:
    """A curve that is watched, and what counts as breaking away."""

    metric: str
    way: Literal["rise", "fall"]
    factor: float
    floor: float
    remedy: Remedy = "closer policies"
    """What answers a break: the learner's own step, or the distance of the policies."""
    window: int = 10

    @property
    def name(self) -> str:
        """How a sentence calls it."""
        return METRICS[self.metric].name

    @property
    def panel(self) -> str:
        """The chart that shows it."""
        return METRICS[self.metric].panel


WATCHED = (
    WatchedCurve("drift/k3", "rise", 10.0, 0.02),
    WatchedCurve("policy/k3", "rise", 10.0, 0.02, "smaller steps"),
    WatchedCurve("train/grad_norm", "rise", 10.0, 1.0, "smaller steps"),
    WatchedCurve("policy/entropy", "rise", 3.0, 0.3),
    WatchedCurve("policy/entropy", "fall", 3.0, 0.1),
    WatchedCurve("rollout/length", "rise", 1.5, 1.0),
    WatchedCurve("rollout/length", "fall", 1.5, 1.0),
    WatchedCurve("rollout/truncated", "rise", 5.0, 0.05),
    WatchedCurve("kept_fraction", "fall", 2.0, 0.1),
    WatchedCurve("weight/ess", "fall", 2.0, 0.2),
)


@dataclass(frozen=True)
class EarlySign:
    """A watched curve that broke away."""

    watch: WatchedCurve
    onset: Onset


def signs(series: Callable[[str], Series], *, first: int | None = None, last: int | None = None) -> list[EarlySign]:
    """Every watched curve's breaks between two steps, both included, earliest first; at one step in the order of the table."""
    breaks = [
        EarlySign(watch, onset)
        for watch in WATCHED
        for onset in onsets(
            series(watch.metric), factor=watch.factor, window=watch.window, floor=watch.floor, way=watch.way
        )
        if (first is None or onset.step >= first) and (last is None or onset.step <= last)
    ]
    return sorted(breaks, key=lambda sign: sign.onset.step)


BIN, NEAR = 5, 10
"""Steps that are gathered to one value, as the lab keeps its curves, and steps over which values are averaged."""
FIRST_STEP = 20


class Predictor(Config):
    """A curve, the value past which it warns, and how reliable that was."""

    metric: str = Field(description="The logged metric.")
    name: str = Field(description="How a reader calls it.")
    panel: str = Field(description="The chart that shows it.")
    gathered: Literal["mean", "max"] = Field(description="How the values of five steps become one.")
    rises: bool = Field(description="Whether it is high before a fall; else low.")
    threshold: float = Field(description="The value past which it warns, for the mean over ten steps.")
    area: tuple[float, float, float] = Field(description="Area under the ROC curve, with its 95 % interval.")
    caught: float = Field(description="Share of the falls that it warned of within 100 steps before.")
    falls: int = Field(description="Falls that were looked at.")
    lead: float = Field(description="Median steps from the warning to the fall.")
    false_share: float = Field(description="Share of the runs that stood which it warned of.")
    stood: int = Field(description="Runs that stood.")

    def first_passing(self, series: Series) -> tuple[int, float] | None:
        """The first step, and the value there, at which the mean over ten steps is past the threshold."""
        last = int(series.steps[-1]) + 1 if len(series) else 0
        for step in range(FIRST_STEP, last + 1, BIN):
            bins = [self._gather(series.within(first, first + BIN - 1)) for first in range(step - NEAR, step, BIN)]
            present = float(np.mean([each for each in bins if each is not None] or [np.nan]))
            if (present > self.threshold) if self.rises else (present < self.threshold):
                return step, present
        return None

    def _gather(self, part: Series) -> float | None:
        values = part.finite.values
        return None if not len(values) else float(values.max() if self.gathered == "max" else values.mean())

    @property
    def title(self) -> str:
        """`Mismatch KL over 0.25`."""
        return f"{self.name} {'over' if self.rises else 'under'} {short_number(self.threshold, 2)}"

    @property
    def reliability(self) -> str:
        """The measured figures in one sentence."""
        area, low, high = map(with_decimals, self.area)
        return (
            f"On the toy tasks of the lab it came before {percent(self.caught)} of {self.falls} falls, "
            f"{short_number(self.lead)} steps ahead at the median, and in {percent(self.false_share)} of {self.stood} runs that stood "
            f"(ROC area {area}, 95 % from {low} to {high})."
        )


@cache
def predictors() -> tuple[Predictor, ...]:
    """Those that come with the package."""
    given: object = json_data(asset("predictors.json", "trimtab.report.findings").encode())
    assert isinstance(given, list)
    return tuple(Predictor.from_settings(each) for each in given)  # pyright: ignore[reportUnknownVariableType]


@dataclass(frozen=True)
class MeasuredWarning:
    """A measured sign that a run showed, and when first."""

    sign: Predictor
    step: int
    value: float

    @property
    def sentence(self) -> str:
        """What was seen."""
        return f"Over the ten steps before step {self.step} it was {short_number(self.value)}."


def warnings_of(run: Run, until: int | None = None) -> list[MeasuredWarning]:
    """The measured signs that a run showed, up to a step or at any."""
    passed = [(each, each.first_passing(run.series(each.metric))) for each in predictors()]
    warnings = [MeasuredWarning(sign, *passing) for sign, passing in passed if passing is not None]
    return [each for each in warnings if until is None or each.step < until]
