"""How rewards and advantages are centred and scaled: whose mean, whose deviation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

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
