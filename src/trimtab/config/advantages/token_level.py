"""Estimators whose advantages differ along a sequence: returns, values, baselines per token, a teacher."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from trimtab.config.advantages.base import (
    BASELINE,
    LEAST,
    MOST,
    SINGLETON,
    WHITEN,
    Estimator,
    Normalise,
    Singleton,
    refuse_crossed,
    refuse_sequences,
)
from trimtab.config.advantages.sequence_level import Gdpo, Gpg, Grpo, LeaveOneOut, MaxRl, Opo, PassK, Rloo
from trimtab.config.base import Flag, Number, Share
from trimtab.errors import ConfigError

Gaps = Literal["skip", "step", "reset"]
Student = Literal["proximal", "behavior", "current"]
GAPS = (
    "What an untrained token between trained ones is: `skip`, nothing, the next trained token follows at once; `step`, a step "
    "with reward 0 and value 0 that discounts; `reset`, an end, so that earlier turns never see a later reward."
)


class Gae(Estimator):
    """Generalised advantage estimation (arXiv 1506.02438) over the trained tokens of a sequence, from a critic's values."""

    from_rewards: ClassVar[bool] = False
    by_group: ClassVar[bool] = False
    kind: Literal["gae"] = "gae"
    gamma: Share = Field(default=1.0, description="The discount of a step.")
    lam: Share = Field(default=0.95, description="λ of the advantages.")
    value_lam: Share | None = Field(
        default=None, description="λ of the returns the critic learns. If not set: that of the advantages (VAPO: 1)."
    )
    length_adaptive: Number | None = Field(
        default=None, gt=0, description="α of λ = max(0, 1 − 1/(α·length)) in place of `lam` (VAPO, arXiv 2504.05118)."
    )
    gaps: Gaps = Field(default="skip", description=GAPS)
    normalise: Normalise | None = Field(
        default=WHITEN, description="Normalisation of the advantages; null: they stay as they are."
    )

    @model_validator(mode="after")
    def _possible(self) -> Gae:
        refuse_sequences(self)
        if self.length_adaptive is not None and self.lam != Gae.model_fields["lam"].default:
            raise ConfigError(f"Gae with length_adaptive needs no lam, got {self.lam}. λ follows the length; drop lam.")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The critic's values."""
        return ("values",)

    @property
    def welcomes(self) -> tuple[str, ...]:
        """The value after the end of sequences that did not end."""
        return ("bootstrap",)


class ReinforcePlusPlus(Estimator):
    """REINFORCE++ (arXiv 2501.03262): the discounted reward to come, normalised over the batch."""

    by_group: ClassVar[bool] = False
    kind: Literal["reinforce++"] = "reinforce++"
    gamma: Share = Field(default=1.0, description="The discount of a step.")
    group_mean: Flag = Field(
        default=False, description="Whether the group's mean reward is subtracted first (REINFORCE++-baseline)."
    )
    gaps: Gaps = Field(default="skip", description=GAPS)
    singleton: Singleton = Field(default="zero", description=SINGLETON)
    lower: Number | None = Field(default=None, description=LEAST)
    upper: Number | None = Field(default=None, description=MOST)
    normalise: Normalise | None = Field(
        default=WHITEN, description="Normalisation of the advantages; null: they stay as they are."
    )

    @model_validator(mode="after")
    def _possible(self) -> ReinforcePlusPlus:
        refuse_sequences(self)
        refuse_crossed(self, self.lower, self.upper)
        return self

    @property
    def needs_group(self) -> bool:
        """Also for the group's mean reward."""
        return self.group_mean or super().needs_group


class ReMax(Estimator):
    """ReMax (arXiv 2310.10505): the reward to come less the reward of the greedy answer, given as `baselines`."""

    from_rewards: ClassVar[bool] = False
    by_group: ClassVar[bool] = False
    kind: Literal["remax"] = "remax"

    @model_validator(mode="after")
    def _possible(self) -> ReMax:
        refuse_sequences(self)
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The reward of the greedy answer."""
        return ("baselines",)


class OptimalToken(Estimator):
    """Optimal token baseline: G − ΣG·W/ΣW over the group's rows at the same step, W the running sum of w²·(1 − 2π + Σπ²)."""

    from_rewards: ClassVar[bool] = False
    kind: Literal["optimal-token"] = "optimal-token"
    tail: Literal["raw", "own"] = Field(
        default="raw",
        description="A step that only one row of the group reaches: `raw`, no baseline; `own`, the row is its own baseline.",
    )
    eps: Number = Field(default=1e-8, ge=0, description="Added to ΣW.")
    singleton: Singleton = Field(default="zero", description=SINGLETON)

    @model_validator(mode="after")
    def _possible(self) -> OptimalToken:
        refuse_sequences(self)
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """The probability of each token, and Σπ²."""
        return ("proximal", "squares")

    @property
    def welcomes(self) -> tuple[str, ...]:
        """The correction's weight."""
        return ("weight",)


RewardEstimator = Annotated[
    Gae | Grpo | Rloo | LeaveOneOut | ReinforcePlusPlus | ReMax | Opo | Gpg | PassK | Gdpo | MaxRl,
    Field(discriminator="kind"),
]
"""The field type of an estimator that reads rewards."""


class Distillation(Estimator):
    """On-policy distillation: coefficient·(log teacher − log student) of each sampled token, beside rewards or in their place."""

    from_rewards: ClassVar[bool] = False
    by_group: ClassVar[bool] = False
    kind: Literal["distillation"] = "distillation"
    coefficient: Number = Field(default=1.0, ge=0, description="What the teacher's log-ratio is multiplied by.")
    student: Student = Field(
        default="proximal",
        description="Whose log-probs are compared with the teacher's: those at the start of the step (slime, ms-swift, NeMo-RL), the "
        "sampler's, or those of the policy as it moves, so that the pull ends where the teacher is reached (prime-rl, verl, AReaL).",
    )
    limit: Number | None = Field(
        default=None,
        gt=0,
        description="The log-ratio is held within ±this before it is multiplied; no bound if not set.",
    )
    base: RewardEstimator | None = Field(
        default=None,
        description="What rewards add to each token, its rows voting by the `baseline` beside it; none: the teacher alone.",
    )

    @field_validator("base", mode="before")
    @classmethod
    def _by_name(cls, given: object) -> object:
        return {"kind": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _possible(self) -> Distillation:
        refuse_sequences(self)
        if self.base is not None and self.base.baseline not in (BASELINE, self.baseline):
            raise ConfigError(
                f"Distillation needs who votes said on itself, got baseline {self.base.baseline} on its base. Set baseline beside base."
            )
        if self.student == "current" and self.normalise is not None:
            raise ConfigError(
                "Distillation of student current needs normalise null, got one. Its advantages move with the policy, a batch's mean does "
                "not. Normalise the base, or take student proximal."
            )
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """What its base reads, the teacher, and the student it names."""
        return (*(() if self.base is None else self.base.reads), "teacher", self.student)

    @property
    def welcomes(self) -> tuple[str, ...]:
        """What its base can use."""
        return () if self.base is None else self.base.welcomes

    @property
    def needs_group(self) -> bool:
        """Also for its base."""
        return super().needs_group or (self.base is not None and self.base.needs_group)
