"""What every estimator says of itself, how rewards are shaped, and how rewards and advantages are normalised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_serializer, model_validator

from trimtab.config.base import Config, Flag, Number
from trimtab.errors import ConfigError

Level = Literal["batch", "group"]
Singleton = Literal["zero", "raw"]
SINGLETON = "A group with one vote: `zero` gives it advantage 0; `raw` takes 0 for its mean and 1 for its deviation."
UNBIASED = "Whether the variance divides by n − 1 rather than n."


class Normalise(Config):
    """Subtract a mean and divide by a deviation, each over the batch, over the group, or not at all.

    Where nothing varies the value is centred and not divided.
    """

    mean: Level | None = Field(
        default="batch", description="Whose mean is subtracted: the batch's, the group's, or nobody's."
    )
    std: Level | None = Field(default="batch", description="Whose standard deviation divides.")
    unit: Literal["token", "sequence"] = Field(
        default="token",
        description="What has one vote where a whole sequence shares one advantage: each of its tokens, or the sequence once. "
        "Values given one per sequence always vote once.",
    )
    leave_one_out: Flag = Field(default=False, description="The mean is that of the others.")
    about: Literal["own", "subtracted"] = Field(
        default="own",
        description="The centre of the deviation: the mean of its own level, or what was subtracted (AReaL: also a leave-one-out "
        "mean, a mean of another level, or 0).",
    )
    unbiased: Flag = Field(default=True, description=UNBIASED)
    eps: Number = Field(default=1e-8, ge=0, description="What keeps the divisor away from 0; `eps_at` says how.")
    eps_at: Literal["std", "variance", "floor"] = Field(
        default="variance",
        description="std: the divisor is σ + eps. variance: √(σ² + eps). floor: √max(σ², eps).",
    )
    singleton: Singleton = Field(default="zero", description=SINGLETON)

    @model_validator(mode="after")
    def _possible(self) -> Normalise:
        if self.mean is None and self.std is None:
            raise ConfigError("Normalise needs a mean or a std, got neither. Leave normalise out to change nothing.")
        if self.mean is None and self.leave_one_out:
            raise ConfigError("Normalise with leave_one_out needs a mean, got none. Set mean to batch or group.")
        return self


WHITEN = Normalise()
"""Mean 0 and variance 1 over the tokens of the whole batch."""


Integer = Annotated[int, Field(strict=True)]


class Overlong(Config):
    """A penalty that grows from 0 to `factor` over the last `buffer` tokens before `max_length`."""

    max_length: Integer = Field(gt=0, description="The length at which the penalty reaches `factor`.")
    buffer: Integer = Field(gt=0, description="How many tokens before max_length the penalty begins.")
    factor: Number = Field(default=1.0, ge=0, description="The penalty at max_length.")
    cap: Flag = Field(default=True, description="Whether the penalty stays at `factor` beyond max_length (AReaL: not).")

    @model_validator(mode="after")
    def _possible(self) -> Overlong:
        if self.buffer > self.max_length:
            raise ConfigError(
                f"Overlong needs buffer <= max_length, got {self.buffer} > {self.max_length}. Every row would be penalised."
            )
        return self


class Shaping(Config):
    """From the reward of a sequence to the one it is trained on: (reward − overlong + bias) × scale, bounded, normalised."""

    bias: Number = Field(default=0.0, description="Added before scaling.")
    scale: Number = Field(default=1.0, description="What the reward is multiplied by.")
    lower: Number | None = Field(default=None, description="Least reward after scaling; no bound if not set.")
    upper: Number | None = Field(default=None, description="Greatest reward after scaling; no bound if not set.")
    overlong: Overlong | None = Field(default=None, description="A penalty on length; none if not set.")
    no_eos: Literal["keep", "zero", "bootstrap", "drop"] = Field(
        default="keep",
        description="A row whose last trained token is not EOS: `keep` its reward; `zero`, no task reward; `bootstrap`, no task "
        "reward and the critic's value after its last token instead (GAE); `drop`, as if it had never been trained. All but keep "
        "take its vote as well.",
    )
    normalise: Normalise | None = Field(
        default=None, description="Over the rows that vote. If not set: not normalised."
    )

    @model_validator(mode="after")
    def _possible(self) -> Shaping:
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ConfigError(
                f"Shaping needs lower <= upper, got [{self.lower}, {self.upper}]. Swap them, or drop one."
            )
        return self

    @property
    def changes_rewards(self) -> bool:
        """Whether it does more than look at how rows end."""
        plain = (self.bias, self.scale, self.lower, self.upper, self.overlong, self.normalise)
        return plain != (0.0, 1.0, None, None, None, None)


Baseline = Literal["kept", "all"]
BASELINE: Baseline = "all"
"""Who votes where nobody says. By measurement: 11 of 12 stale runs with a sequence gate ended lower with `kept` (docs/advantages.md)."""
LEAST = "Least reward once the baseline is subtracted (and divided by); no bound if not set."
MOST = "Greatest reward once the baseline is subtracted (and divided by); no bound if not set."


class Estimator(Config):
    """What every estimator says besides its `kind`: who votes, and how the advantages are normalised."""

    from_rewards: ClassVar[bool] = True
    """Whether one reward per sequence, and its group, is all it reads."""
    by_group: ClassVar[bool] = True
    """Whether rewards are compared with those of the group, whatever its settings."""
    baseline: Baseline = Field(
        default=BASELINE,
        description="Who votes in means and deviations: all rows, also those that a gate rejected or that have no tokens, as in other "
        "frameworks; or only rows (and tokens) that were kept. A row without a task reward never votes.",
    )
    normalise: Normalise | None = Field(
        default=None, description="Normalisation of the advantages. If not set: they stay as they are."
    )

    @property
    def reads(self) -> tuple[str, ...]:
        """What it needs besides rewards and groups, by the names that `trimtab.advantages` takes."""
        return ()

    @property
    def welcomes(self) -> tuple[str, ...]:
        """What else it can use."""
        return ()

    @property
    def needs_group(self) -> bool:
        """Whether it has to know which responses answer the same prompt."""
        return self.by_group or (self.normalise is not None and "group" in (self.normalise.mean, self.normalise.std))

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
