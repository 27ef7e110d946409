"""Weight = level × bounds × outside × scope × limit: the factor on each token's loss."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trimtab.config.base import Config, Number
from trimtab.config.bounds import BatchBounds, BoundScale, Limit, Scope, batch_bounds_problem, scale_problem, side
from trimtab.errors import ConfigError

WeightLevel = Literal["one", "token", "segment", "segment_product", "geometric", "sequence", "prefix", "least_prefix"]
BY_PREFIX = ("prefix", "least_prefix")
"""Levels at which a token weighs what came before it too, and not what comes after."""
BY_SEGMENT = ("segment", "segment_product")
"""Levels at which a token weighs the ratios of its turn."""
_GATHERED = {"segment": "mean", "geometric": "mean", "segment_product": "sum", "sequence": "sum"}
"""How a weight gathers log-ratios over its unit; None for single tokens."""


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
                f"Weight needs bounds that contain 1, got [{side(low)}, {side(high)}]. On-policy data must weigh 1."
            )
        if self.level == "one" and (low, high, self.limit, self.bounds) != (None, None, None, None):
            raise ConfigError(
                f"Weight at level one needs no bounds, got [{side(low)}, {side(high)}]. Every token weighs 1."
            )
        if self.outside == "zero" and low is None and high is None and self.bounds is None:
            raise ConfigError(
                "Weight with outside zero needs a lower or an upper bound, got neither. Set one, or drop outside."
            )
        if self.limit is not None and self.limit.at == "gathered" and self.level in ("token", "least_prefix"):
            raise ConfigError(
                f"Weight at {self.level} level needs limit.at token, got 'gathered'. Nothing is aggregated there."
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
        problem = scale_problem("Weight", self.bound_scale, level=self.level, agg=agg, bounded=bounded)
        problem = batch_bounds_problem("Weight", self.bounds, self.bound_scale, fixed=fixed) or problem
        if problem is None and by_ess and self.outside == "zero":
            problem = "Weight with bounds ess needs outside clamp, got zero. A weight of 0 takes its share away."
        return problem

    def doubts(self) -> list[str]:
        """A bound that cannot bite."""
        if self.outside == "clamp" and self.lower == 0:
            return ["Weight with lower 0 has no effect: a ratio is never below 0. Drop lower."]
        return []
