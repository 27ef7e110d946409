"""Gate = pair × metric × level × agg × bounds × action × when × scope × limit: a test, and what happens outside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from trimtab.config.base import Config, Number
from trimtab.config.bounds import BatchBounds, BoundScale, Limit, Scope, batch_bounds_problem, scale_problem, side
from trimtab.config.divergences import DIVERGENCES, HEAD_METRICS
from trimtab.errors import ConfigError

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
        "must lie inside, one outside fails the whole unit. `budget` (batch level): the worst tokens go until the mean of the rest "
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
        facts = DIVERGENCES.get(str(given.get("metric", "")))
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
        facts = DIVERGENCES[self.metric]
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
            return "Gate on age needs neither pair nor limit, got one. Age compares no policies; drop it."
        if self.limit is not None and self.limit.at == "gathered" and self.level in ("token", "batch"):
            return f"Gate at {self.level} level needs limit.at token, got 'gathered'. Nothing is aggregated there."
        return None

    def _bounds_problem(self) -> str | None:
        facts = DIVERGENCES[self.metric]
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
                f"Gate on ratio needs bounds that contain 1, got [{side(low)}, {side(high)}]. "
                "On-policy data sits there and must always stay."
            )
        if self.agg == "budget" and (low is not None or high is None or facts.least < 0):
            return (
                f"Gate with agg budget needs an upper bound only, on a metric that is never negative, got {self.metric} in "
                f"[{side(low)}, {side(high)}]. M2PO is metric second_moment with upper 0.04."
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
            problem = (
                "Gate with bounds needs keep, got ess. A gate keeps a share of the units and does not change weights."
            )
        least = min((bound for bound in (self.lower, self.upper) if bound is not None), default=1.0)
        if problem is None and self.bound_scale != "none" and self.metric == "mult_prob_error" and least <= 0:
            problem = f"Gate on mult_prob_error with bound_scale needs bounds > 0, got {least:g}. A factor is positive."
        return problem

    @property
    def _excludes_neutral(self) -> bool:
        """Whether on-policy data lies outside the bounds. Nothing on-policy moves away, so such a gate never meets it."""
        neutral = DIVERGENCES[self.metric].neutral
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
        of_token = self.level == "token" and self.metric not in (*HEAD_METRICS, "age")
        return of_token and self.bounds is None and self.bound_scale != "entropy"

    def doubts(self) -> list[str]:
        """Bounds that cannot fire, or hardly ever do."""
        if self.bound_scale != "none":  # what a bound comes to is not known yet
            return []
        found: list[str] = []
        if self._excludes_neutral:
            found.append(
                f"Gate on {self.metric} with [{side(self.lower)}, {side(self.upper)}] rejects on-policy data: "
                f"it sits at {DIVERGENCES[self.metric].neutral:g}. Widen the bounds to contain it."
            )
        found += [*self._out_of_range(), *self._beyond_limit()]
        wide = self.metric == "ratio" and self.agg == "mean" and self.action in ("reject", "zero")
        if wide and (self.upper or 1.0) >= 1.5 and (self.lower is None or self.lower <= 0.67):
            found.append(
                f"Gate on the geometric mean ratio with [{side(self.lower)}, {side(self.upper)}] hardly ever fires: a mean over "
                "many tokens stays close to 1. Frameworks use 0.9999–1.0001 to 0.9–1.1."
            )
        return found

    def _out_of_range(self) -> Iterator[str]:
        """Bounds that the metric never reaches."""
        facts, summed = DIVERGENCES[self.metric], self.agg == "sum" and self.metric != "ratio"
        least = -math.inf if summed and facts.least != 0 else facts.least
        most = math.inf if summed else facts.most
        if self.lower is not None and self.lower <= least:
            yield f"Gate on {self.metric} with lower {self.lower:g} cannot fire: it is never below {facts.least:g}. Drop lower."
        if self.upper is not None and self.upper >= most:
            yield f"Gate on {self.metric} with upper {self.upper:g} cannot fire: it is never above {facts.most:g}. Lower it."

    def _beyond_limit(self) -> Iterator[str]:
        """Bounds on a ratio that its own limit keeps it from."""
        if self.limit is None or self.metric != "ratio" or (self.limit.at == "token" and self.agg == "sum"):
            return
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound is not None and abs(math.log(bound)) >= self.limit.bound:
                yield f"Gate on ratio with {name} {bound:g} cannot fire: limit holds log_r within ±{self.limit.bound:g}."
