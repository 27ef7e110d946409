"""Policy gradients without a clip: every token is pulled, by a factor that bounds, gates or shrinks its ratio."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from trimtab.config.base import Number
from trimtab.config.losses.base import AdvantageOf, Cap, Gradient, LogLimit, Objective, Over, RatioLevel
from trimtab.errors import ConfigError


class Reinforce(Objective):
    """−A·log current. Needs no anchor. Also GPG, with its own advantages."""

    uses_ratio: ClassVar[bool] = False
    weighs_by_ratio: ClassVar[bool] = False
    kind: Literal["reinforce"] = Field(default="reinforce", description="The name of this loss.")


class ImportancePg(Objective):
    """−A·ρ, differentiated through ρ, nothing clipped."""

    kind: Literal["importance-pg"] = Field(default="importance-pg", description="The name of this loss.")
    log_limit: LogLimit = None


class Cispo(Objective):
    """−sg(clip(ρ, lower, upper))·A·log current: every token keeps a gradient; arXiv 2506.13585."""

    kind: Literal["cispo"] = Field(default="cispo", description="The name of this loss.")
    lower: Number | None = Field(default=None, ge=0, description="Least factor, in ρ itself; no bound if not set.")
    upper: Number | None = Field(default=1.2, gt=0, description="Greatest factor, in ρ itself; null: open.")
    outside: Literal["clamp", "zero"] = Field(
        default="clamp", description="Beyond the bounds the factor is held at the bound, or is 0."
    )
    level: RatioLevel = "token"
    scope: Over = "kept"
    log_limit: LogLimit = None

    @model_validator(mode="after")
    def _possible(self) -> Cispo:
        low, high = self.lower, self.upper
        if (low is not None and low > 1) or (high is not None and high < 1):
            raise ConfigError(
                f"Cispo needs bounds that contain 1, got [{low}, {high}]. They bound ρ itself: write 1.2, not 0.2."
            )
        return self


class Sapo(Objective):
    """−A·(4/τ)·sigmoid(τ·(ρ − 1)): a soft gate in place of the clip; arXiv 2511.20347."""

    kind: Literal["sapo"] = Field(default="sapo", description="The name of this loss.")
    tau_positive: Number = Field(default=1.0, gt=0, description="Temperature where A > 0.")
    tau_negative: Number = Field(default=1.05, gt=0, description="Temperature where A <= 0.")
    level: RatioLevel = "token"
    advantage: AdvantageOf = "token"
    scope: Over = "kept"
    log_limit: LogLimit = None


class KlCov(Objective):
    """−Aρ, and coefficient·|log ρ| on the tokens of highest covariance; arXiv 2505.22617."""

    acts_without_advantage: ClassVar[bool] = True
    looks_at_call: ClassVar[bool] = True
    kind: Literal["kl-cov"] = Field(default="kl-cov", description="The name of this loss.")
    fraction: Number = Field(default=2e-4, gt=0, le=1, description="The part of the kept tokens that is penalised.")
    coefficient: Number = Field(default=1.0, ge=0, description="The weight of |log ρ| on them.")


class DppoTv(Objective):
    """Policy gradient without the tokens whose probability has already moved far the way A pushes it; arXiv 2602.04879."""

    kind: Literal["dppo-tv"] = Field(default="dppo-tv", description="The name of this loss.")
    low: Number = Field(default=0.2, ge=0, le=1, description="Where A < 0, the probability may have fallen by this.")
    high: Number = Field(default=0.2, ge=0, le=1, description="Where A > 0, the probability may have risen by this.")
    gradient: Gradient = "log_prob"
    ratio_cap: Cap = None
    log_limit: LogLimit = None


class DppoKl(Objective):
    """Policy gradient without the tokens that move away and whose binary KL(anchor ‖ current) is large; arXiv 2602.04879."""

    kind: Literal["dppo-kl"] = Field(default="dppo-kl", description="The name of this loss.")
    low: Number = Field(default=0.05, ge=0, description="Where A < 0 and the probability has fallen, the greatest KL.")
    high: Number = Field(default=0.05, ge=0, description="Where A > 0 and the probability has risen, the greatest KL.")
    gradient: Gradient = "log_prob"
    ratio_cap: Cap = None
    log_limit: LogLimit = None


class Topr(Objective):
    """−A·log current where A >= 0; −sg(clip(r, lower, upper))·A·log current where A < 0, r of the answer; arXiv 2503.14286."""

    kind: Literal["topr"] = Field(default="topr", description="The name of this loss.")
    lower: Number = Field(default=0.0, ge=0, le=1, description="Least factor where A < 0.")
    upper: Number = Field(default=1.0, ge=1, description="Greatest factor where A < 0.")
    level: Literal["sequence", "token"] = Field(
        default="sequence",
        description="What r is: the product of ρ over the sequence, as in the paper, or each token's own ρ, as in ROLL.",
    )
    positive: Number = Field(default=1.0, ge=0, description="What the loss is multiplied by where A >= 0.")
    negative: Number = Field(default=1.0, ge=0, description="What the loss is multiplied by where A < 0.")
    scope: Over = "kept"


class Vespo(Objective):
    """−sg(φ(w))·A·log current, φ(w) = e^λ·w^k·e^(−λw), w the product of the ratios of the sequence."""

    looks_at_sequence: ClassVar[bool] = True
    kind: Literal["vespo"] = Field(default="vespo", description="The name of this loss.")
    k_positive: Number = Field(default=2.0, ge=0, description="k where A >= 0.")
    lambda_positive: Number = Field(default=3.0, gt=0, description="λ where A >= 0.")
    k_negative: Number = Field(default=3.0, ge=0, description="k where A < 0.")
    lambda_negative: Number = Field(default=2.0, gt=0, description="λ where A < 0.")
    scope: Over = "kept"
    log_limit: Number = Field(default=20.0, gt=0, description="log ρ of each token stays within ±this, log w below it.")
    least: Number = Field(default=1e-8, gt=0, lt=1, description="w, and each weight inside it, is at least this.")
    weights: Literal["outside", "inside"] = Field(
        default="outside",
        description="The correction's weights multiply each token's loss, or enter the product w and nothing else.",
    )


class Dro(Objective):
    """−A·log current + (beta/2)·(log ρ)²: squared drift instead of a clip; Kimi k1.5, arXiv 2501.12599."""

    weighs_by_ratio: ClassVar[bool] = False
    acts_without_advantage: ClassVar[bool] = True
    kind: Literal["dro"] = Field(default="dro", description="The name of this loss.")
    beta: Number = Field(default=0.1, gt=0, description="The weight of the squared log-ratio.")
