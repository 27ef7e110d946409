"""What every loss says of itself, how losses per token become one number, and the KL and entropy terms beside a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, model_serializer, model_validator

from trimtab.config.base import Config, Number
from trimtab.config.correction import Correction, Scope
from trimtab.errors import ConfigError

Mode = Literal[
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "prompt-mean",
]


class Reduction(Config):
    """How losses per token become one number. Sequences and prompts without tokens never count."""

    mode: Mode = Field(
        description="token-mean: Σ / tokens. token-sum: Σ. seq-mean-token-mean: mean over sequences of the mean over tokens. "
        "seq-mean-token-sum: Σ / sequences. …-norm: also / constant. prompt-mean: mean over prompts of the mean over their tokens.",
    )
    constant: Number | None = Field(
        default=None, gt=0, description="A divisor that never changes; for …-norm (needed) and token-sum."
    )

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, settings: Any) -> Any:
        return {"mode": settings} if isinstance(settings, str) else settings

    @model_validator(mode="after")
    def _possible(self) -> Reduction:
        if self.mode == "seq-mean-token-sum-norm" and self.constant is None:
            raise ConfigError(
                "Reduction seq-mean-token-sum-norm needs a constant, got none. Use the longest answer allowed: the width "
                "of a batch would make the step depend on how it is split."
            )
        if self.constant is not None and self.mode not in ("seq-mean-token-sum-norm", "token-sum"):
            raise ConfigError(f"Reduction {self.mode} needs no constant, got {self.constant:g}. Drop it.")
        return self

    @classmethod
    def from_settings(cls, settings: object) -> Reduction:
        """The reduction that a name or plain settings describe."""
        return super().from_settings({"mode": settings} if isinstance(settings, str) else settings)


REDUCTIONS: dict[str, Reduction] = {
    mode: Reduction(mode=mode) for mode in get_args(Mode) if mode != "seq-mean-token-sum-norm"
}
"""Every reduction that its name says whole."""


def reduction_of_mode(given: object) -> object:
    """A reduction by its mode alone."""
    return None if given is None else Reduction.from_settings(given)


# Fields that several losses share, each with its one description.
Low = Annotated[Number, Field(ge=0, le=1, description="Where A < 0, nothing is gained from ρ below 1 − low.")]
High = Annotated[Number, Field(ge=0, description="Where A > 0, nothing is gained from ρ above 1 + high.")]
Dual = Annotated[
    Number | None, Field(gt=1, description="Where A < 0, the loss is at most this times |A|. If not set: no such cap.")
]
Cap = Annotated[
    Number | None, Field(gt=1, description="ρ, where nothing clips it, is at most this; no bound if not set.")
]
LogLimit = Annotated[
    Number | None,
    Field(
        gt=0, description="log ρ is held within ±this before the exponential. If not set: where the number type ends."
    ),
]
RatioLevel = Annotated[
    Literal["token", "sequence"], Field(description="ρ of each token, or the geometric mean over its sequence.")
]
AdvantageOf = Annotated[
    Literal["token", "sequence"], Field(description="Each token's own advantage, or the mean over its sequence.")
]
Over = Annotated[
    Scope, Field(description="Sequence statistics run over every trained token, or only over those that are kept.")
]
Gradient = Annotated[
    Literal["log_prob", "ratio"], Field(description="−A·sg(ρ)·log current, or −A·ρ differentiated through ρ.")
]


class Objective(Config):
    """A loss per token. Its settings always carry its `kind`, so that a file can say which loss it means."""

    uses_ratio: ClassVar[bool] = True
    """Whether it needs an anchor."""
    weighs_by_ratio: ClassVar[bool] = True
    """Whether ρ scales the gradient of a token, so that a weight of the same ratio counts it a second time."""
    acts_without_advantage: ClassVar[bool] = False
    """Whether a token whose advantage is 0 matters: it is pulled itself, or moves a mean over the others. If not, the loss is
    proportional to the advantage, and a row without one can be left out."""
    own_reduction: ClassVar[Mode] = "token-mean"
    """The reduction where none is asked for."""
    looks_at_call: ClassVar[bool] = False
    """Whether a token's loss depends on the other tokens of its micro-batch."""
    looks_at_sequence: ClassVar[bool] = False
    """Whether a token's loss depends on the other tokens of its sequence, whatever its settings."""

    @property
    def is_of_token(self) -> bool:
        """Whether the slope of a token's loss is its advantage times a function of its own log-probs: then it can be centered."""
        by_sequence = any(getattr(self, name, "token") != "token" for name in ("level", "advantage"))
        return not (self.looks_at_call or self.looks_at_sequence or self.acts_without_advantage or by_sequence)

    @property
    def proportional_to_advantage(self) -> bool:
        """Whether c > 0 times the advantages of a sequence is c times its loss and gradient: some trainers divide those, not losses."""
        return not self.acts_without_advantage

    def doubts_beside(self, rule: Correction | None, reduction: Reduction) -> list[str]:
        """What is legal beside this correction and this reduction and probably not meant."""
        del reduction
        weighted = rule is not None and rule.weight is not None and rule.weight.level != "one"
        if not (self.weighs_by_ratio and weighted and rule is not None and rule.policies == "bypass"):
            return []
        return [
            f"{type(self).__name__} under a bypass rule with a weight counts the ratio twice: ρ is current/behavior already, and "
            "the weight multiplies by it again. Drop the weight (gates may stay), or take Reinforce, which has no ratio."
        ]

    @model_serializer(mode="wrap")
    def _with_kind(self, plain: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        return {"kind": kind_of(type(self))} | plain(self)


def kind_of(loss: type[Config]) -> str:
    """The name of a loss class."""
    return str(loss.model_fields["kind"].default)


PaidOn = Annotated[Scope, Field(description="Paid on every trained token, or only on those that are kept.")]


class KlPenalty(Config):
    """KL to the reference policy, in the loss or in the reward. d = log current − log reference."""

    coefficient: Number = Field(description="The weight of the term.")
    estimator: Literal["k1", "k2", "k3", "abs"] = Field(
        default="k3", description="k1: d. k2: d²/2. k3: e^(−d) − 1 + d. abs: |d|."
    )
    gradient: Literal["own", "unbiased"] = Field(
        default="own",
        description="The estimator's own gradient, or that of k2 under the estimator's value, which is the gradient of the KL.",
    )
    importance: Literal["none", "full", "gradient"] = Field(
        default="none",
        description="full: the estimate times ρ, differentiated through both. gradient: sg(ρ) scales the gradient only.",
    )
    importance_cap: Number | None = Field(
        default=None, gt=0, description="That ρ is at most this; no bound if not set."
    )
    input_limit: Number | None = Field(default=None, gt=0, description="d is held within ±this; no bound if not set.")
    output_limit: Number | None = Field(default=None, gt=0, description="The estimate is held within ±this.")
    mask: PaidOn = "trained"
    reduction: Reduction | None = Field(default=None, description="Its own reduction. If not set: the policy term's.")

    @model_validator(mode="after")
    def _possible(self) -> KlPenalty:
        if self.importance_cap is not None and self.importance == "none":
            raise ConfigError(
                "KlPenalty with importance_cap needs importance full or gradient, got none. Drop the cap."
            )
        return self


class EntropyBonus(Config):
    """−coefficient · entropy, per token."""

    coefficient: Number = Field(description="The weight of the term; positive rewards entropy.")
    mask: PaidOn = "trained"
    reduction: Reduction | None = Field(default=None, description="Its own reduction. If not set: the policy term's.")
