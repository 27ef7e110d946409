"""What a loss may have beside it: a KL to the reference policy, and an entropy bonus."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimtab.config.algebra import Scope
from trimtab.config.base import Config, Number
from trimtab.config.losses.reduction import Reduction
from trimtab.errors import ConfigError

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
