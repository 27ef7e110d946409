"""PPO's clip and its relatives: nothing is gained from a ratio beyond its bounds, of a token or of its sequence."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from trimtab.config.base import Number
from trimtab.config.correction import Correction
from trimtab.config.losses.base import AdvantageOf, Cap, Dual, High, LogLimit, Low, Mode, Objective, Over, Reduction
from trimtab.errors import ConfigError

OF_TOKENS = 0.01
"""A clip of a geometric mean ratio from here on is one for tokens: the mean of ℓ over a sequence stays within thousandths."""
PAPER = (3e-4, 4e-4)
"""GSPO's bounds below and above 1 (arXiv 2507.18071, section 5.1)."""


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
    low: Low = PAPER[0]
    high: High = PAPER[1]
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

    def doubts(self) -> list[str]:
        """Bounds that are meant for ratios of tokens."""
        return _clip_of_tokens(self)


class Luspo(Objective):
    """GSPO times the length of the sequence, so that seq-mean-token-mean does not discount long answers."""

    own_reduction: ClassVar[Mode] = "seq-mean-token-mean"
    looks_at_sequence: ClassVar[bool] = True
    kind: Literal["luspo"] = Field(default="luspo", description="The name of this loss.")
    low: Low = PAPER[0]
    high: High = PAPER[1]
    scope: Over = "kept"

    def doubts(self) -> list[str]:
        """Bounds that are meant for ratios of tokens."""
        return _clip_of_tokens(self)

    def doubts_beside(self, rule: Correction | None, reduction: Reduction) -> list[str]:
        """A reduction that does not take the length out again."""
        doubts = super().doubts_beside(rule, reduction)
        if reduction.mode != self.own_reduction:
            doubts.append(
                f"Luspo with reduction {reduction.mode} weighs a sequence by its length squared: the loss of each token is multiplied "
                "by it already. Use seq-mean-token-mean."
            )
        return doubts


def _clip_of_tokens(loss: Gspo | Luspo) -> list[str]:
    if min(loss.low, loss.high) < OF_TOKENS:
        return []
    return [
        f"{type(loss).__name__} with low {loss.low:g} and high {loss.high:g} hardly ever clips: the geometric mean of the ratios of a "
        f"sequence moves far less than one of them. The paper has {PAPER[0]:g} and {PAPER[1]:g}."
    ]


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


MOST_BOUNDS = 1000
"""How many bounds a search may try: all are worked out at once."""


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
