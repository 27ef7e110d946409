"""Estimators that give a whole sequence one advantage, from its reward and those of its group."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from trimtab.config.advantages.base import (
    LEAST,
    MOST,
    SINGLETON,
    UNBIASED,
    Estimator,
    Integer,
    Level,
    Normalise,
    Singleton,
    refuse_crossed,
)
from trimtab.config.base import Flag, Number


class Grpo(Estimator):
    """GRPO (arXiv 2402.03300): the reward less the group's mean, over its deviation; without std, Dr. GRPO."""

    kind: Literal["grpo"] = "grpo"
    std: Flag = Field(default=True, description="Whether to divide by the standard deviation.")
    std_over: Level = Field(default="group", description="Whose standard deviation.")
    unbiased: Flag = Field(default=True, description=UNBIASED)
    eps: Number = Field(default=1e-6, ge=0, description="Added to the standard deviation.")
    singleton: Singleton = Field(default="zero", description=SINGLETON)
    lower: Number | None = Field(default=None, description=LEAST)
    upper: Number | None = Field(default=None, description=MOST)

    @model_validator(mode="after")
    def _possible(self) -> Grpo:
        refuse_crossed(self, self.lower, self.upper)
        return self


class Rloo(Estimator):
    """RLOO (arXiv 2402.14740): the reward less the mean of the others in the group."""

    kind: Literal["rloo"] = "rloo"
    singleton: Singleton = Field(default="zero", description=SINGLETON)
    lower: Number | None = Field(default=None, description=LEAST)
    upper: Number | None = Field(default=None, description=MOST)

    @model_validator(mode="after")
    def _possible(self) -> Rloo:
        refuse_crossed(self, self.lower, self.upper)
        return self


class LeaveOneOut(Estimator):
    """The reward less the mean of the others, over the deviation of the others; not divided where the others agree."""

    kind: Literal["leave-one-out"] = "leave-one-out"
    std: Flag = Field(default=True, description="Whether to divide by the standard deviation of the others.")
    unbiased: Flag = Field(default=True, description=UNBIASED)
    eps: Number = Field(default=1e-6, ge=0, description="Added to the standard deviation.")
    singleton: Singleton = Field(default="zero", description=SINGLETON)


class Opo(Estimator):
    """OPO (arXiv 2505.23585): the reward less the group's mean weighted by length, the baseline of least variance."""

    kind: Literal["opo"] = "opo"
    singleton: Singleton = Field(default="zero", description=SINGLETON)


class Gpg(Estimator):
    """GPG (arXiv 2504.02546): the reward less the group's mean, times rows over rows of groups whose rewards differ."""

    kind: Literal["gpg"] = "gpg"
    factor: Literal["varied", "nonzero"] = Field(
        default="varied",
        description="What the rows of the batch are divided by: those of groups whose rewards differ, as in the paper, B/(B − M); "
        "or those whose reward is not 0, as in verl.",
    )
    singleton: Singleton = Field(default="zero", description=SINGLETON)


class PassK(Estimator):
    """What a row adds to the best of k: the mean over k-subsets with it of (max − max without it) (arXiv 2505.15201)."""

    kind: Literal["pass@k"] = "pass@k"
    k: Integer | None = Field(
        default=None,
        ge=2,
        description="How many samples the best is taken of. If not set, or above the group's size: all.",
    )
    std: Flag = Field(default=True, description="Whether to divide by the group's standard deviation.")
    unbiased: Flag = Field(default=True, description=UNBIASED)
    eps: Number = Field(default=1e-6, ge=0, description="Added to the standard deviation.")


class Gdpo(Estimator):
    """GDPO (arXiv 2601.05242): each of several rewards normalised in its group, then their weighted sum."""

    from_rewards: ClassVar[bool] = False
    kind: Literal["gdpo"] = "gdpo"
    weights: tuple[Number, ...] = Field(
        min_length=1, description="One weight per reward; rewards are given as [rows, rewards]."
    )
    std: Flag = Field(default=True, description="Whether to divide by the group's standard deviation.")
    leave_one_out: Flag = Field(
        default=False, description="Mean and deviation are those of the others in the group (NeMo-RL)."
    )
    unbiased: Flag = Field(default=True, description=UNBIASED)
    eps: Number = Field(default=1e-6, ge=0, description="Added to the standard deviation.")
    singleton: Singleton = Field(default="zero", description=SINGLETON)
    normalise: Normalise | None = Field(
        default=Normalise(unit="sequence"),
        description="Normalisation of the weighted sum; null: it stays as it is.",
    )


class MaxRl(Estimator):
    """MaxRL (arXiv 2602.02710): the reward less the group's mean, over that mean; 0 where the mean is not positive."""

    kind: Literal["maxrl"] = "maxrl"
    eps: Number = Field(default=1e-6, ge=0, description="Added to the mean in the divisor.")
