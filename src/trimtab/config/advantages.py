"""What an advantage can be: how rewards are shaped, which estimator reads them, and how the result is normalised."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_serializer, model_validator

from trimtab.config.base import Config, Number, of_kind
from trimtab.errors import ConfigError, UnknownNameError, nearest

Level = Literal["batch", "group"]
Baseline = Literal["kept", "all"]
Singleton = Literal["zero", "raw"]
Gaps = Literal["skip", "step", "reset"]
Student = Literal["proximal", "behavior", "current"]
Fraction = Annotated[Number, Field(ge=0, le=1)]
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]

BASELINE: Baseline = "all"
"""Who votes where nobody says. By measurement: 11 of 12 stale runs with a sequence gate ended lower with `kept` (docs/advantages.md)."""

SINGLETON = "A group with one vote: `zero` gives it advantage 0; `raw` takes 0 for its mean and 1 for its deviation."
UNBIASED = "Whether the variance divides by n − 1 rather than n."
LEAST = "Least reward once the baseline is subtracted (and divided by); no bound if not set."
MOST = "Greatest reward once the baseline is subtracted (and divided by); no bound if not set."
GAPS = (
    "What an untrained token between trained ones is: `skip`, nothing, the next trained token follows at once; `step`, a step "
    "with reward 0 and value 0 that discounts; `reset`, an end, so that earlier turns never see a later reward."
)


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


class Overlong(Config):
    """A penalty that grows from 0 to `factor` over the last `buffer` tokens before `max_length`."""

    max_length: Whole = Field(gt=0, description="The length at which the penalty reaches `factor`.")
    buffer: Whole = Field(gt=0, description="How many tokens before max_length the penalty begins.")
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


class Estimator(Config):
    """What every estimator says besides its `kind`: who votes, and how the advantages are normalised."""

    from_rewards: ClassVar[bool] = True
    """Whether one reward per sequence, and its group, is all it reads."""
    baseline: Baseline = Field(
        default=BASELINE,
        description="Who votes in means and deviations: all rows, also those that a gate rejected or that have no tokens, as in other "
        "frameworks; or only rows (and tokens) that were kept. A row without a task reward never votes.",
    )
    normalise: Normalise | None = Field(
        default=None, description="Normalisation of the advantages. If not set: they stay as they are."
    )

    @model_serializer(mode="wrap")
    def _with_kind(self, settings: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """The kind is always written down, though it is a default: settings are read back by it."""
        return {"kind": type(self).model_fields["kind"].default} | settings(self)


class Gae(Estimator):
    """Generalised advantage estimation (arXiv 1506.02438) over the trained tokens of a sequence, from a critic's values."""

    from_rewards: ClassVar[bool] = False
    kind: Literal["gae"] = "gae"
    gamma: Fraction = Field(default=1.0, description="The discount of a step.")
    lam: Fraction = Field(default=0.95, description="λ of the advantages.")
    value_lam: Fraction | None = Field(
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
        _refuse_sequences(self)
        if self.length_adaptive is not None and self.lam != Gae.model_fields["lam"].default:
            raise ConfigError(f"Gae with length_adaptive needs no lam, got {self.lam}. λ follows the length; drop lam.")
        return self


class ReinforcePlusPlus(Estimator):
    """REINFORCE++ (arXiv 2501.03262): the discounted reward to come, normalised over the batch."""

    kind: Literal["reinforce++"] = "reinforce++"
    gamma: Fraction = Field(default=1.0, description="The discount of a step.")
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
        _refuse_sequences(self)
        _refuse_crossed(self, self.lower, self.upper)
        return self


class ReMax(Estimator):
    """ReMax (arXiv 2310.10505): the reward to come less the reward of the greedy answer, given as `baselines`."""

    from_rewards: ClassVar[bool] = False
    kind: Literal["remax"] = "remax"

    @model_validator(mode="after")
    def _possible(self) -> ReMax:
        _refuse_sequences(self)
        return self


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
        _refuse_crossed(self, self.lower, self.upper)
        return self


class Rloo(Estimator):
    """RLOO (arXiv 2402.14740): the reward less the mean of the others in the group."""

    kind: Literal["rloo"] = "rloo"
    singleton: Singleton = Field(default="zero", description=SINGLETON)
    lower: Number | None = Field(default=None, description=LEAST)
    upper: Number | None = Field(default=None, description=MOST)

    @model_validator(mode="after")
    def _possible(self) -> Rloo:
        _refuse_crossed(self, self.lower, self.upper)
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
    k: Whole | None = Field(
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
        _refuse_sequences(self)
        return self


RewardEstimator = Annotated[
    Gae | Grpo | Rloo | LeaveOneOut | ReinforcePlusPlus | ReMax | Opo | Gpg | PassK | Gdpo | MaxRl,
    Field(discriminator="kind"),
]
"""The field type of an estimator that reads rewards."""


class Distillation(Estimator):
    """On-policy distillation: coefficient·(log teacher − log student) of each sampled token, beside rewards or in their place."""

    from_rewards: ClassVar[bool] = False
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
        _refuse_sequences(self)
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


AnyEstimator = Annotated[
    Gae
    | Grpo
    | Rloo
    | LeaveOneOut
    | ReinforcePlusPlus
    | ReMax
    | Opo
    | Gpg
    | PassK
    | Gdpo
    | MaxRl
    | OptimalToken
    | Distillation,
    Field(discriminator="kind"),
]
"""The field type of a settings class that holds an estimator."""

ESTIMATORS: dict[str, type[Estimator]] = {
    each.model_fields["kind"].default: each for each in get_args(get_args(AnyEstimator)[0])
}


def estimator(kind: str, **settings: Any) -> Estimator:
    """The estimator of that kind with these settings."""
    if kind not in ESTIMATORS:
        raise UnknownNameError(f"There is no advantage estimator {kind!r}. {nearest(kind, ESTIMATORS)}")
    return ESTIMATORS[kind](**settings)


def estimator_from(value: object) -> Estimator:
    """An estimator as it is, or the one of that name."""
    if isinstance(value, str):
        return _NAMED[value] if value in _NAMED else estimator(value)
    return of_kind(Estimator, value, "advantages needs an estimator or its name", 'trimtab.Grpo() or "grpo"')


def _refuse_sequences(value: Estimator) -> None:
    if value.normalise is not None and value.normalise.unit == "sequence":
        raise ConfigError(
            f"{type(value).__name__} needs normalise.unit token, got 'sequence'. Its advantages differ along a sequence."
        )


def _refuse_crossed(value: Estimator, lower: float | None, upper: float | None) -> None:
    if lower is not None and upper is not None and lower > upper:
        raise ConfigError(
            f"{type(value).__name__} needs lower <= upper, got [{lower}, {upper}]. Swap them, or drop one."
        )


_NAMED = {
    kind: each()
    for kind, each in ESTIMATORS.items()
    if not any(field.is_required() for field in each.model_fields.values())
}
"""Made beforehand: nothing is validated while a step is compiled."""
