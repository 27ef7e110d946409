"""What the optimiser can be asked to descend: a Loss, a Reduction, and the KL and entropy terms beside them.

ρ = current / anchor, per token; the anchor is proximal (decoupled, or no correction) or behavior (bypass). A = advantage.
sg = detached. GRPO, DAPO and Dr.GRPO are `Clip` with another reduction, GPG is `Reinforce` with its own advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, cast, get_args

from pydantic import Field, model_serializer, model_validator

from trimtab.config.algebra import Correction, Scope
from trimtab.config.base import Config, Number
from trimtab.errors import ConfigError, UnknownNameError, nearest

Mode = Literal[
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
    "prompt-mean",
]

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
PaidOn = Annotated[Scope, Field(description="Paid on every trained token, or only on those that are kept.")]


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


class Clip(Objective):
    """PPO: max(−Aρ, −A·clip(ρ, 1 − low, 1 + high)); arXiv 1707.06347, clip-higher 2503.14476, dual clip 1912.09729."""

    kind: Literal["clip"] = Field(default="clip", description="The name of this loss.")
    low: Low = 0.2
    high: High = 0.2
    dual: Dual = None
    ratio_cap: Cap = None
    log_limit: LogLimit = None

    def doubts(self) -> list[str]:
        """A cap that undoes the clip."""
        if self.ratio_cap is not None and self.ratio_cap <= 1 + self.high:
            return [f"Clip with ratio_cap {self.ratio_cap:g} acts before 1 + high = {1 + self.high:g}. Raise it."]
        return []


class Gspo(Objective):
    """Clip on the geometric mean ratio of the sequence; arXiv 2507.18071."""

    looks_at_sequence: ClassVar[bool] = True
    kind: Literal["gspo"] = Field(default="gspo", description="The name of this loss.")
    low: Low = 3e-4
    high: High = 4e-4
    level: Literal["sequence", "sequence-token", "segment"] = Field(
        default="sequence",
        description="sequence: the gradient flows through the mean. sequence-token: sg(mean) with each token's own gradient. "
        "segment: as sequence, for each contiguous run of the mask.",
    )
    advantage: AdvantageOf = "token"
    scope: Over = "kept"
    dual: Dual = None
    ratio_cap: Cap = None
    log_upper: Number | None = Field(
        default=None,
        gt=0,
        description="The log of the mean ratio is at most this. If not set: where the number type ends.",
    )


class Luspo(Objective):
    """GSPO times the length of the sequence, so that seq-mean-token-mean does not discount long answers."""

    own_reduction: ClassVar[Mode] = "seq-mean-token-mean"
    looks_at_sequence: ClassVar[bool] = True
    kind: Literal["luspo"] = Field(default="luspo", description="The name of this loss.")
    low: Low = 3e-4
    high: High = 4e-4
    scope: Over = "kept"

    def doubts_beside(self, rule: Correction | None, reduction: Reduction) -> list[str]:
        """A reduction that does not take the length out again."""
        found = super().doubts_beside(rule, reduction)
        if reduction.mode != self.own_reduction:
            found.append(
                f"Luspo with reduction {reduction.mode} weighs a sequence by its length squared: the loss of each token is multiplied "
                "by it already. Use seq-mean-token-mean."
            )
        return found


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


class Gmpo(Objective):
    """−A·(geometric mean of the clipped ratios of the sequence), A its mean advantage; arXiv 2507.20673."""

    looks_at_sequence: ClassVar[bool] = True
    kind: Literal["gmpo"] = Field(default="gmpo", description="The name of this loss.")
    low: Number = Field(default=0.4, ge=0, description="Where A < 0, nothing is gained from log ρ below −low.")
    high: Number = Field(default=0.4, ge=0, description="Where A > 0, nothing is gained from log ρ above high.")
    scope: Over = "kept"
    weights: Literal["token", "geometric"] = Field(
        default="token",
        description="The correction's weights multiply each token, or their geometric mean the whole sequence.",
    )


class ClipCov(Objective):
    """Clip, with some tokens of high covariance between log-prob and advantage left out; arXiv 2505.22617."""

    acts_without_advantage: ClassVar[bool] = True
    looks_at_call: ClassVar[bool] = True
    kind: Literal["clip-cov"] = Field(default="clip-cov", description="The name of this loss.")
    low: Low = 0.2
    high: High = 0.2
    fraction: Number = Field(
        default=2e-4, gt=0, le=1, description="How many to leave out, drawn at random, as a part of the kept tokens."
    )
    lower: Number = Field(default=1.0, description="Least covariance of a token that may be left out; exclusive.")
    upper: Number = Field(default=5.0, description="Greatest covariance of a token that may be left out; exclusive.")

    @model_validator(mode="after")
    def _possible(self) -> ClipCov:
        if self.lower >= self.upper:
            raise ConfigError(f"ClipCov needs lower < upper, got [{self.lower}, {self.upper}]. Swap them.")
        return self


class KlCov(Objective):
    """−Aρ, and coefficient·|log ρ| on the tokens of highest covariance; arXiv 2505.22617."""

    acts_without_advantage: ClassVar[bool] = True
    looks_at_call: ClassVar[bool] = True
    kind: Literal["kl-cov"] = Field(default="kl-cov", description="The name of this loss.")
    fraction: Number = Field(default=2e-4, gt=0, le=1, description="The part of the kept tokens that is penalised.")
    coefficient: Number = Field(default=1.0, ge=0, description="The weight of |log ρ| on them.")


class Reinforce(Objective):
    """−A·log current. Needs no anchor. Also GPG, with its own advantages."""

    uses_ratio: ClassVar[bool] = False
    weighs_by_ratio: ClassVar[bool] = False
    kind: Literal["reinforce"] = Field(default="reinforce", description="The name of this loss.")


class ImportancePg(Objective):
    """−A·ρ, differentiated through ρ, nothing clipped."""

    kind: Literal["importance-pg"] = Field(default="importance-pg", description="The name of this loss.")
    log_limit: LogLimit = None


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


class Bapo(Objective):
    """Clip whose bounds on ρ are found for each batch: widened in steps until gains reach `target` times losses; arXiv 2510.18927.

    Gains are Σ A·min(ρ, upper) where A > 0, losses Σ |A|·max(ρ, lower) where A < 0. The lower bound rises first, then the upper one.
    """

    looks_at_call: ClassVar[bool] = True
    kind: Literal["bapo"] = Field(default="bapo", description="The name of this loss.")
    target: Number = Field(default=1.0, ge=0, description="Gains over losses at which the search ends.")
    lower: Number = Field(default=0.6, ge=0, le=1, description="Where A < 0, the bound on ρ at first.")
    lower_max: Number = Field(default=0.8, ge=0, le=1, description="The greatest such bound.")
    lower_step: Number = Field(default=0.05, gt=0, description="What it rises by.")
    upper: Number = Field(default=1.2, ge=1, description="Where A > 0, the bound on ρ at first.")
    upper_max: Number = Field(default=2.0, ge=1, description="The greatest such bound.")
    upper_step: Number = Field(default=0.05, gt=0, description="What it rises by.")
    dual: Dual = 3.0
    log_limit: LogLimit = 20.0

    @model_validator(mode="after")
    def _possible(self) -> Bapo:
        for side in ("lower", "upper"):
            first, last, step = (getattr(self, name) for name in (side, f"{side}_max", f"{side}_step"))
            if first > last:
                raise ConfigError(f"Bapo needs {side} <= {side}_max, got {first:g} > {last:g}. Swap them.")
            if (last - first) / step > MOST_BOUNDS:
                raise ConfigError(
                    f"Bapo needs at most {MOST_BOUNDS} steps of {side}_step, got {(last - first) / step:.0f}. Take larger ones."
                )
        return self

    @property
    def proportional_to_advantage(self) -> bool:
        """What one sequence gains moves the bounds of all."""
        return False

    @property
    def lowers(self) -> tuple[float, ...]:
        """The lower bounds in the order in which they are tried."""
        return _bounds(self.lower, self.lower_max, self.lower_step)

    @property
    def uppers(self) -> tuple[float, ...]:
        """The upper bounds in the order in which they are tried."""
        return _bounds(self.upper, self.upper_max, self.upper_step)


MOST_BOUNDS = 1000
"""How many bounds a search may try: all are worked out at once."""


def _bounds(first: float, last: float, step: float) -> tuple[float, ...]:
    found = [first]
    while found[-1] < last:
        found.append(min(found[-1] + step, last))
    return tuple(found)


class Aspo(Objective):
    """Clip with 1/ρ in place of ρ where A > 0: a token that became likely is pushed less, one that fell behind more; arXiv 2510.06062."""

    kind: Literal["aspo"] = Field(default="aspo", description="The name of this loss.")
    low: Low = 0.2
    high: High = 0.2
    dual: Number = Field(default=3.0, gt=1, description="Where A < 0, the factor ρ is at most this, its slope kept.")
    dual_positive: Number = Field(
        default=3.0, gt=1, description="Where A > 0, the factor 1/ρ is at most this, its slope kept."
    )
    log_limit: LogLimit = 20.0


class Fipo(Objective):
    """Clip times sg(w), w = e^(Σ γ^(j − t)·log ρ_j over the tokens j from t on): what a token led to counts; arXiv 2603.19835."""

    looks_at_sequence: ClassVar[bool] = True
    kind: Literal["fipo"] = Field(default="fipo", description="The name of this loss.")
    low: Low = 0.2
    high: High = 0.2
    ratio_cap: Number | None = Field(
        default=None,
        gt=1,
        description="ρ, where nothing clips it, is at most this, and a token beyond it is no part of any w; no bound if not set.",
    )
    half_life: Number = Field(
        default=32.0, gt=0, description="Tokens after which a log-ratio counts half: γ = 2^(−1/half_life)."
    )
    lower: Number | None = Field(default=1.0, ge=0, description="Least w; null: open.")
    upper: Number | None = Field(default=1.2, gt=0, description="Greatest w; null: open.")
    safety: Number | None = Field(
        default=4.0, gt=1, description="Where A < 0 and ρ is above this, w is held within 0.8 and 1; null: nowhere."
    )

    @model_validator(mode="after")
    def _possible(self) -> Fipo:
        if self.lower is not None and self.upper is not None and self.lower > self.upper:
            raise ConfigError(f"Fipo needs lower <= upper, got [{self.lower:g}, {self.upper:g}]. Swap them.")
        return self

    @property
    def decay(self) -> float:
        """γ: what is left of a log-ratio one token back."""
        return 2.0 ** (-1.0 / self.half_life)


AnyLoss = (
    Clip | Gspo | Luspo | Cispo | Sapo | Gmpo | ClipCov | KlCov | Reinforce | ImportancePg | DppoTv | DppoKl | Topr
) | (Vespo | Dro | Bapo | Aspo | Fipo)
Loss = Annotated[AnyLoss, Field(discriminator="kind")]
"""Any loss; as a field of another Config it is read by its `kind`."""

LOSSES: dict[str, type[Objective]] = {kind_of(each): each for each in get_args(AnyLoss)}
"""Every loss by name."""

_NAMED: dict[str, Objective] = {kind: each() for kind, each in LOSSES.items()}
"""Made beforehand: nothing is validated while a step is compiled."""


def loss_from(settings: object) -> Objective:
    """The loss that a name, or plain settings with a `kind`, describe."""
    if isinstance(settings, Objective):
        return settings
    if isinstance(settings, str) and settings in _NAMED:
        return _NAMED[settings]
    plain: object = {"kind": settings} if isinstance(settings, str) else settings
    if not isinstance(plain, Mapping) or "kind" not in plain:
        raise ConfigError(f"A loss needs a kind, got {settings!r}. {nearest('', LOSSES)}")
    kind = str(cast("Mapping[str, Any]", plain)["kind"])
    if kind not in LOSSES:
        raise UnknownNameError(f"There is no loss {kind!r}. {nearest(kind, LOSSES)}")
    return LOSSES[kind].from_settings(cast("object", plain))


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


REDUCTIONS: dict[str, Reduction] = {
    mode: Reduction(mode=mode) for mode in get_args(Mode) if mode != "seq-mean-token-sum-norm"
}
"""Every reduction that its name says whole."""
