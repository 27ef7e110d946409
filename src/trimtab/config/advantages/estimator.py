"""What every estimator says of itself: who votes, and how its advantages are normalised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field, model_serializer

from trimtab.config.advantages.normalise import Normalise
from trimtab.config.base import Config
from trimtab.errors import ConfigError

Baseline = Literal["kept", "all"]
BASELINE: Baseline = "all"
"""Who votes where nobody says. By measurement: 11 of 12 stale runs with a sequence gate ended lower with `kept` (docs/advantages.md)."""
LEAST = "Least reward once the baseline is subtracted (and divided by); no bound if not set."
MOST = "Greatest reward once the baseline is subtracted (and divided by); no bound if not set."


class Estimator(Config):
    """What every estimator says besides its `kind`: who votes, and how the advantages are normalised."""

    from_rewards: ClassVar[bool] = True
    """Whether one reward per sequence, and its group, is all it reads."""
    baseline: Baseline = Field(
        default=BASELINE,
        description="Who votes in means and deviations: all rows, also those that a gate rejected or that have no tokens, as in other "
        "frameworks; or only rows (and tokens) that were kept. A row without a task reward never votes.",
    )
    normalise: Normalise | None = Field(
        default=None, description="Normalisation of the advantages. If not set: they stay as they are."
    )

    @model_serializer(mode="wrap")
    def _with_kind(self, settings: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The kind is always written down, though it is a default: settings are read back by it."""
        return {"kind": type(self).model_fields["kind"].default} | settings(self)


def refuse_sequences(value: Estimator) -> None:
    """An error where advantages that differ along a sequence would be normalised one per sequence."""
    if value.normalise is not None and value.normalise.unit == "sequence":
        raise ConfigError(
            f"{type(value).__name__} needs normalise.unit token, got 'sequence'. Its advantages differ along a sequence."
        )


def refuse_crossed(value: Estimator, lower: float | None, upper: float | None) -> None:
    """An error where the lower bound lies above the upper one."""
    if lower is not None and upper is not None and lower > upper:
        raise ConfigError(
            f"{type(value).__name__} needs lower <= upper, got [{lower}, {upper}]. Swap them, or drop one."
        )
