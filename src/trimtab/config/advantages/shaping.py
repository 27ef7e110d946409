"""From the reward of a sequence to the one it is trained on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimtab.config.advantages.normalise import Normalise
from trimtab.config.base import Config, Flag, Number
from trimtab.errors import ConfigError

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
