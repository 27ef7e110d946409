"""Signs whose reliability was measured: curves that were high or low before runs of the lab fell, and how often in vain.

predictors.json is written by `trimtab lab signs`; its figures are those of runs that had no part in choosing the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from pydantic import Field

from trimtab.config.base import Config
from trimtab.config.bounded import json_data
from trimtab.report.document import asset
from trimtab.report.run import Run
from trimtab.report.series import Series
from trimtab.report.text import percent, short_number, with_decimals

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
    found: object = json_data(asset("predictors.json", "trimtab.report.findings").encode())
    assert isinstance(found, list)
    return tuple(Predictor.from_settings(each) for each in found)  # pyright: ignore[reportUnknownVariableType]


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
    found = [MeasuredWarning(sign, *passing) for sign, passing in passed if passing is not None]
    return [each for each in found if until is None or each.step < until]
