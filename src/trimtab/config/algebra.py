"""What a correction can say: Correction = policies + gates + weight + normalize + denominator + applies_to."""

from __future__ import annotations

import math
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from trimtab.config.adaptive import BatchBounds, BoundScale, batch_bounds_problem, scale_problem
from trimtab.config.base import Config, Number
from trimtab.config.metrics import HEAD_METRICS, METRICS
from trimtab.errors import ConfigError

Policies = Literal["decoupled", "bypass"]
Pair = Literal["proximal/behavior", "current/behavior", "current/proximal"]
Metric = Literal[
    "ratio",
    "k1",
    "k2",
    "k3",
    "binary_kl",
    "tv",
    "prob_diff",
    "abs_log_ratio",
    "ratio_deviation",
    "mult_prob_error",
    "second_moment",
    "head_tv",
    "head_kl",
    "age",
]
Direction = Literal["forward", "reverse", "max"]
GateLevel = Literal["token", "segment", "sequence", "batch"]
Agg = Literal["mean", "sum", "max", "min", "every", "budget"]
Action = Literal["reject", "zero", "clamp", "observe"]
When = Literal["always", "negative_advantage", "nonpositive_advantage", "positive_advantage", "moving_away"]
Scope = Literal["trained", "kept"]
WeightLevel = Literal["one", "token", "segment", "segment_product", "geometric", "sequence", "prefix", "least_prefix"]
BY_PREFIX = ("prefix", "least_prefix")
"""Levels at which a token weighs what came before it too, and not what comes after."""
BY_SEGMENT = ("segment", "segment_product")
"""Levels at which a token weighs the ratios of its turn."""
_GATHERED = {"segment": "mean", "geometric": "mean", "segment_product": "sum", "sequence": "sum"}
"""How a weight gathers log-ratios over its unit; None for single tokens."""


class Limit(Config):
    """A safety bound on log_r, so that no exponential overflows; part of a framework's exact numbers."""

    bound: Number = Field(gt=0, description="log_r, or what is gathered from it, is held within [-bound, bound].")
    at: Literal["token", "gathered"] = Field(
        default="token", description="Where it bites: on each token before gathering, or on the gathered value."
    )


class Gate(Config):
    """A test on a divergence between two policies that says which tokens or sequences stay."""

    metric: Metric = Field(description="The divergence that is tested; see `trimtab explain --metrics`.")
    level: GateLevel = Field(
        default="token",
        description="What is judged: each token, each contiguous run of the mask (a turn), each sequence, or (budget) "
        "the tokens of the whole batch.",
    )
    agg: Agg | None = Field(
        default=None,
        description="How token values become one value per segment or sequence (mean if not set). `every`: each token "
        "must lie inside, one outside condemns all. `budget` (batch level): the worst tokens go until the mean of the rest "
        "is at most `upper`. Ratios are gathered in log space, so mean is the geometric mean and sum the product.",
    )
    lower: Number | None = Field(default=None, description="Least value that stays (inclusive); no bound if not set.")
    upper: Number | None = Field(
        default=None, description="Greatest value that stays (inclusive); no bound if not set."
    )
    action: Action = Field(
        default="reject",
        description="What happens outside: `reject` leaves the mask; `zero` stays in the mask and its denominator with weight 0; "
        "`clamp` (ratio only) holds the weight at the bounds; `observe` changes nothing and reports.",
    )
    when: When = Field(
        default="always",
        description="Where the gate acts: everywhere, only where the advantage is negative or positive, or only where the "
        "update pushes further away (sign of advantage × sign of log_r).",
    )
    advantage_of: Literal["unit", "token"] = Field(
        default="unit",
        description="Whose advantage `when` reads at segment and sequence level: the mean over the unit judged, or each token's. "
        "moving_away always reads tokens.",
    )
    strict: bool = Field(
        default=False,
        strict=True,
        description="Budget only: the mean of the rest must lie below `upper`, and where nothing does the smallest value stays "
        "(AReaL's M2PO).",
    )
    pair: Pair | None = Field(
        default=None, description="The two policies compared. If not set: the pair of the correction's `policies`."
    )
    direction: Direction | None = Field(
        default=None,
        description="k1, k3, binary_kl, head_kl: `forward` is KL(behavior ‖ target), `reverse` KL(target ‖ behavior), `max` the larger.",
    )
    scope: Scope = Field(
        default="trained",
        description="Statistics over every trained token, or only over those that earlier gates kept.",
    )
    limit: Limit | None = Field(default=None, description="A safety bound on log_r.")
    bounds: BatchBounds | None = Field(
        default=None, description="In place of lower and upper: `keep: 0.99` keeps that share of the batch."
    )
    bound_scale: BoundScale = Field(
        default="none",
        description="What the distance of the bounds from the on-policy value is multiplied by, for ratios in log space (2 at scale ½ is "
        "√2): nothing; the token's entropy; 1 − q, q its probability under behavior; or 1/√T of a mean over T tokens.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, settings: Any) -> Any:
        """Make what is implied explicit, so that two ways to write one gate are equal."""
        if not isinstance(settings, dict):
            return settings
        given = cast("dict[str, Any]", settings)
        implied = {"segment": "mean", "sequence": "mean", "batch": "budget"}.get(str(given.get("level", "token")))
        filled = dict(given)
        if filled.get("agg") is None and implied:
            filled["agg"] = implied
        facts = METRICS.get(str(given.get("metric", "")))
        if filled.get("direction") is None and facts and facts.directions:
            filled["direction"] = "forward"
        return filled

    @model_validator(mode="after")
    def _possible(self) -> Gate:
        for problem in (self._shape_problem, self._bounds_problem, self._varying_problem, self._action_problem):
            message = problem()
            if message:
                raise ConfigError(message)
        return self

    def _shape_problem(self) -> str | None:
        facts = METRICS[self.metric]
        if self.level == "token" and self.agg is not None:
            return f"Gate at token level needs no agg, got {self.agg!r}. Drop agg, or set level to segment or sequence."
        if self.level == "batch" and self.agg != "budget":
            return f"Gate at batch level needs agg budget, got {self.agg!r}. Set level to sequence for one verdict per sequence."
        if self.level in ("segment", "sequence") and self.agg == "budget":
            return f"Gate with agg budget needs level batch, got {self.level!r}. The budget is shared by all tokens of a batch."
        if self.strict and self.agg != "budget":
            return f"Gate with strict needs agg budget, got {self.agg!r}. Other bounds are closed; drop strict."
        if self.direction is not None and self.direction not in facts.directions:
            if not facts.directions:
                return f"Gate on {self.metric} needs no direction, got {self.direction!r}. It is the same both ways; drop it."
            return (
                f"Gate on {self.metric} needs direction {' or '.join(facts.directions)}, got {self.direction!r}. "
                "The larger of the two is offered for divergences that are never negative."
            )
        if self.metric == "age" and (self.pair is not None or self.limit is not None):
            return "Gate on age needs neither pair nor limit, got one. No policies are compared; drop it."
        if self.limit is not None and self.limit.at == "gathered" and self.level in ("token", "batch"):
            return f"Gate at {self.level} level needs limit.at token, got 'gathered'. Nothing is gathered there."
        return None

    def _bounds_problem(self) -> str | None:
        facts = METRICS[self.metric]
        low, high = self.lower, self.upper
        if low is None and high is None and self.bounds is None and self.action != "observe":
            return "Gate needs a lower or an upper bound, got neither. Set one, or action: observe to only report."
        if low is not None and high is not None and low > high:
            return f"Gate needs lower <= upper, got [{low}, {high}]. Swap them, or drop one to leave that side open."
        if self.metric == "ratio":
            for name, bound in (("lower", low), ("upper", high)):
                if bound is not None and bound <= 0:
                    return f"Gate on ratio needs {name} > 0, got {bound}. A ratio is positive; drop the bound to leave it open."
        if self._excludes_neutral and self.metric == "ratio" and self.agg not in ("max", "min"):
            return (
                f"Gate on ratio needs bounds that contain 1, got [{_side(low)}, {_side(high)}]. "
                "On-policy data sits there and must always stay."
            )
        if self.agg == "budget" and (low is not None or high is None or facts.least < 0):
            return (
                f"Gate with agg budget needs an upper bound only, on a metric that is never negative, got {self.metric} in "
                f"[{_side(low)}, {_side(high)}]. M2PO is metric second_moment with upper 0.04."
            )
        return None

    def _varying_problem(self) -> str | None:
        """Why its bounds cannot be scaled, or found in the batch."""
        given = tuple(name for name in ("lower", "upper") if getattr(self, name) is not None)
        problem = scale_problem(
            "Gate", self.bound_scale, level=self.level, agg=self.agg, bounded=bool(given or self.bounds)
        )
        problem = batch_bounds_problem("Gate", self.bounds, self.bound_scale, fixed=given) or problem
        if problem is None and self.bounds is not None and self.bounds.ess is not None:
            problem = "Gate with bounds needs keep, got ess. What passes weighs as it did; a share is kept."
        least = min((bound for bound in (self.lower, self.upper) if bound is not None), default=1.0)
        if problem is None and self.bound_scale != "none" and self.metric == "mult_prob_error" and least <= 0:
            problem = f"Gate on mult_prob_error with bound_scale needs bounds > 0, got {least:g}. A factor is positive."
        return problem

    @property
    def _excludes_neutral(self) -> bool:
        """Whether on-policy data lies outside the bounds. Nothing on-policy moves away, so such a gate never meets it."""
        neutral = METRICS[self.metric].neutral
        outside = (self.lower is not None and self.lower > neutral) or (self.upper is not None and self.upper < neutral)
        return outside and self.when != "moving_away"

    def _action_problem(self) -> str | None:
        if self.action == "clamp" and self.metric != "ratio":
            return f"Gate with action clamp needs metric ratio, got {self.metric!r}. Only a ratio has a weight to hold at a bound."
        if self.action == "clamp" and self.agg in ("every", "budget"):
            return (
                f"Gate with action clamp needs agg mean, sum, max or min, got {self.agg!r}. Use action reject or zero."
            )
        return None

    @property
    def is_of_token(self) -> bool:
        """Whether its verdict on a token depends on that token's own probabilities alone."""
        own = self.level == "token" and self.metric not in (*HEAD_METRICS, "age")
        return own and self.bounds is None and self.bound_scale != "entropy"

    def doubts(self) -> list[str]:
        """Bounds that cannot fire, or hardly ever do."""
        facts = METRICS[self.metric]
        if self.bound_scale != "none":  # what a bound comes to is not known yet
            return []
        found: list[str] = []
        if self._excludes_neutral:
            found.append(
                f"Gate on {self.metric} with [{_side(self.lower)}, {_side(self.upper)}] turns on-policy data away: "
                f"it sits at {facts.neutral:g}. Widen the bounds to contain it."
            )
        most = facts.most if self.agg != "sum" or self.metric == "ratio" else math.inf
        least = facts.least if self.agg != "sum" or self.metric == "ratio" or facts.least == 0 else -math.inf
        if self.lower is not None and self.lower <= least:
            found.append(
                f"Gate on {self.metric} with lower {self.lower:g} cannot fire: it is never below {facts.least:g}. Drop lower."
            )
        if self.upper is not None and self.upper >= most:
            found.append(
                f"Gate on {self.metric} with upper {self.upper:g} cannot fire: it is never above {facts.most:g}. Lower it."
            )
        if self.limit is not None and self.metric == "ratio" and (self.limit.at == "gathered" or self.agg != "sum"):
            found.extend(
                f"Gate on ratio with {name} {bound:g} cannot fire: limit holds log_r within ±{self.limit.bound:g}."
                for name, bound in (("lower", self.lower), ("upper", self.upper))
                if bound is not None and abs(math.log(bound)) >= self.limit.bound
            )
        wide = self.metric == "ratio" and self.agg == "mean" and self.action in ("reject", "zero")
        if wide and (self.upper or 1.0) >= 1.5 and (self.lower is None or self.lower <= 0.67):
            found.append(
                f"Gate on the geometric mean ratio with [{_side(self.lower)}, {_side(self.upper)}] hardly ever fires: a mean over "
                "many tokens stays close to 1. Frameworks use 0.9999–1.0001 to 0.9–1.1."
            )
        return found


class Weight(Config):
    """The detached factor on each token's policy-gradient loss: a power of the ratio between two policies."""

    level: WeightLevel = Field(
        description="Which ratio a token weighs: `one` none, every token weighs 1; `token` its own; `geometric` the geometric "
        "mean of its sequence; `sequence` the product over its sequence; `segment` the geometric mean of its turn, `segment_product` the "
        "product over it; `prefix` the product up to and with it (per decision); `least_prefix` its own times the least before it.",
    )
    lower: Number | None = Field(default=None, ge=0, description="Least weight; no bound if not set.")
    upper: Number | None = Field(default=None, gt=0, description="Greatest weight; no bound if not set.")
    outside: Literal["clamp", "zero"] = Field(
        default="clamp",
        description="Beyond the bounds the weight is held at the bound (truncated) or becomes 0 (IcePop).",
    )
    scope: Scope = Field(
        default="trained", description="Gathered over every trained token, or only over those the gates kept."
    )
    limit: Limit | None = Field(default=None, description="A safety bound on log_r.")
    bounds: BatchBounds | None = Field(
        default=None,
        description="In place of numbers: `keep: 0.99` leaves that share of the weights as they are; `ess: 0.9` sets the greatest "
        "`upper` that keeps this effective share.",
    )
    bound_scale: BoundScale = Field(
        default="none",
        description="What the logarithms of the bounds are multiplied by: nothing; the token's entropy; 1 − q, q its probability under "
        "behavior; or 1/√T of a geometric mean over T tokens.",
    )

    @model_validator(mode="after")
    def _possible(self) -> Weight:
        low, high = self.lower, self.upper
        if low is not None and high is not None and low > high:
            raise ConfigError(f"Weight needs lower <= upper, got [{low}, {high}]. Swap them, or drop one.")
        if (low is not None and low > 1) or (high is not None and high < 1):
            raise ConfigError(
                f"Weight needs bounds that contain 1, got [{_side(low)}, {_side(high)}]. On-policy data must weigh 1."
            )
        if self.level == "one" and (low, high, self.limit, self.bounds) != (None, None, None, None):
            raise ConfigError(
                f"Weight at level one needs no bounds, got [{_side(low)}, {_side(high)}]. Every token weighs 1."
            )
        if self.outside == "zero" and low is None and high is None and self.bounds is None:
            raise ConfigError(
                "Weight with outside zero needs a lower or an upper bound, got neither. Set one, or drop outside."
            )
        if self.limit is not None and self.limit.at == "gathered" and self.level in ("token", "least_prefix"):
            raise ConfigError(
                f"Weight at {self.level} level needs limit.at token, got 'gathered'. Nothing is gathered there."
            )
        problem = self._varying_problem()
        if problem:
            raise ConfigError(problem)
        return self

    def _varying_problem(self) -> str | None:
        """Why its bounds cannot be scaled, or found in the batch."""
        by_ess = self.bounds is not None and self.bounds.ess is not None
        given = tuple(name for name in ("lower", "upper") if getattr(self, name) is not None)
        fixed = tuple(name for name in given if name == "upper" or not by_ess)
        bounded = bool(given or self.bounds)
        agg = _GATHERED.get(self.level)
        found = scale_problem("Weight", self.bound_scale, level=self.level, agg=agg, bounded=bounded)
        found = batch_bounds_problem("Weight", self.bounds, self.bound_scale, fixed=fixed) or found
        if found is None and by_ess and self.outside == "zero":
            found = "Weight with bounds ess needs outside clamp, got zero. A weight of 0 takes its share away."
        return found

    def doubts(self) -> list[str]:
        """A bound that cannot bite."""
        if self.outside == "clamp" and self.lower == 0:
            return ["Weight with lower 0 cannot bite: a ratio is never below 0. Drop lower."]
        return []


class Correction(Config):
    """What is done about the difference between the policy that sampled and the policy that trains."""

    policies: Policies = Field(
        default="decoupled",
        description="decoupled: log_r = log proximal − log behavior (three policies). bypass: log current − log behavior (two).",
    )
    gates: tuple[Gate, ...] = Field(default=(), description="Tests in order; each says which tokens or sequences stay.")
    weight: Weight | None = Field(
        default=None, description="The factor on each token's loss. If not set: every token weighs 1."
    )
    normalize: Literal["batch", "group"] | None = Field(
        default=None,
        description="batch: weights are divided by their mean over the whole batch (tokens for token, segment and prefix weights, "
        "sequences for the others), across ranks, never per micro-batch. group: by their mean over the responses to the same prompt "
        "(self-normalised per group); all of a group are on one rank.",
    )
    denominator: Literal["trained", "kept"] = Field(
        default="trained",
        description="What a loss reduction counts: tokens before rejection (a rejected token must not raise the others' step) or after.",
    )
    applies_to: Literal["policy", "policy+kl"] = Field(
        default="policy",
        description="What the weight multiplies: the policy-gradient term, or the KL-to-reference term too.",
    )
    centering: Literal["score"] | None = Field(
        default=None,
        description="score: each token's gradient less its mean under the sampler, over the head of its distribution, so that a constant "
        "advantage has no gradient on average (score centering). Needs a weight at level one or token, and the sampler's head.",
    )

    @model_validator(mode="after")
    def _possible(self) -> Correction:
        if self.normalize is not None and not self.weighs:
            raise ConfigError("Correction with normalize needs a weight, got none. Add one, or drop normalize.")
        clamps = [gate for gate in self.gates if gate.action == "clamp"]
        if clamps and not self.weighs:
            raise ConfigError(
                "Gate with action clamp needs a weight to hold, got none. Add a weight, or use action reject."
            )
        problem = None if self.centering is None else self._centering_problem()
        if problem:
            raise ConfigError(problem)
        return self

    def _centering_problem(self) -> str | None:
        """Why a mean over the ids of one token cannot be told: what a token weighs has to be a function of itself."""
        if self.weight is not None and self.weight.level not in ("one", "token"):
            return (
                f"Correction with centering score needs a weight at level one or token, got {self.weight.level!r}. "
                "What another id would have weighed is known for single tokens only."
            )
        if self.normalize is not None:
            return f"Correction with centering score needs normalize none, got {self.normalize}. The mean moves with the sampled ids."
        weight = self.weight
        if weight is not None and (weight.bounds is not None or weight.bound_scale == "entropy"):
            return (
                "Correction with centering score needs weight bounds of the token alone, got bounds of the batch or by entropy. "
                "Set lower and upper."
            )
        if any(gate.action == "clamp" and not gate.is_of_token for gate in self.gates):
            return (
                "Correction with centering score needs clamp gates at token level, got one above it. Use action reject."
            )
        return None

    def doubts(self) -> list[str]:
        """A correction that does nothing without saying so."""
        if not self.gates and self.weight is None and self.centering is None:
            return ["Correction with no gate and no weight corrects nothing. Say so with trimtab.preset('off')."]
        return []

    @property
    def pair(self) -> Pair:
        """The two policies log_r compares."""
        return "proximal/behavior" if self.policies == "decoupled" else "current/behavior"

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """Every pair this correction looks at, its own first."""
        return tuple(dict.fromkeys([self.pair, *(gate.pair or self.pair for gate in self.gates)]))

    @property
    def needs(self) -> tuple[str, ...]:
        """The policies whose log-probs must be given."""
        named = {name for pair in self.pairs for name in pair.split("/")}
        return tuple(name for name in ("behavior", "proximal", "current") if name in named)

    @property
    def needs_advantages(self) -> bool:
        """Whether a gate looks at the advantage."""
        return any(gate.when != "always" for gate in self.gates)

    @property
    def needs_whole_step(self) -> bool:
        """Whether what is decided about one token depends on all the others of the step: a budget, bounds found in the batch, or
        weights over their mean.

        Such a rule is worked out once per step and handed to the micro-batches in parts.
        """
        found = any(part.bounds is not None for part in (*self.gates, self.weight) if part is not None)
        return found or self.normalize is not None or any(gate.level == "batch" for gate in self.gates)

    @property
    def needs_head(self) -> bool:
        """Whether a gate looks at more of the distributions than the sampled token."""
        return any(gate.metric in HEAD_METRICS for gate in self.gates)

    @property
    def needs_age(self) -> bool:
        """Whether a gate looks at the versions that sampled."""
        return any(gate.metric == "age" for gate in self.gates)

    @property
    def needs_entropy(self) -> bool:
        """Whether a bound is scaled by the entropy of each token."""
        return any(part.bound_scale == "entropy" for part in (*self.gates, self.weight) if part is not None)

    @property
    def needs_group(self) -> bool:
        """Whether weights are divided by the mean of their group."""
        return self.normalize == "group"

    @property
    def of_tokens(self) -> Correction:
        """What it decides about a token by itself, so that it can be asked about ids that were not sampled."""
        gates = tuple(gate for gate in self.gates if gate.is_of_token)
        return Correction(policies=self.policies, gates=gates, weight=self.weight or Weight(level="one"))

    @property
    def weighs(self) -> bool:
        """Whether tokens may weigh anything but 0 and 1."""
        return self.weight is not None and self.weight.level != "one"

    @property
    def has_segments(self) -> bool:
        """Whether a gate or the weight looks at turns or prefixes, which no rank may hold a part of only."""
        return any(part.level in (*BY_SEGMENT, *BY_PREFIX) for part in (*self.gates, self.weight) if part is not None)


def _side(bound: float | None) -> str:
    return "open" if bound is None else f"{bound:g}"
