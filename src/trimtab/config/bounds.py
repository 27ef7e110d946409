"""Bounds of gates and weights: numbers, numbers scaled by what is known of each unit, those found in the whole batch; a limit on log_r."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trimtab.config.base import Config, Number
from trimtab.errors import ConfigError

BoundScale = Literal["none", "entropy", "one_minus_p", "inv_sqrt_length"]
BY_TOKEN = ("entropy", "one_minus_p")
"""Scales that a token has; a mean over tokens has the other one, its length."""


class BatchBounds(Config):
    """Bounds found in the whole batch, across ranks, in place of numbers; one of the two."""

    keep: Number | None = Field(
        default=None,
        gt=0,
        le=1,
        description="The share of the units, those nearest to on-policy, that lies inside: at least keep·n of n, rounded up. What lies as "
        "far as the last of them stays too.",
    )
    ess: Number | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Weights only: the greatest `upper` at which the effective share of the units, (Σw)² / (n·Σw²), is at least this; 1 "
        "where only a bound below 1 would reach it.",
    )

    @model_validator(mode="after")
    def _one(self) -> BatchBounds:
        if (self.keep is None) == (self.ess is None):
            given = "neither" if self.keep is None else "both"
            raise ConfigError(f"BatchBounds needs keep or ess, got {given}. Set exactly one.")
        return self


def scale_problem(thing: str, scale: BoundScale, *, level: str, agg: str | None, bounded: bool) -> str | None:
    """Why bounds cannot be scaled so. `agg` is how tokens become a unit, None for single tokens."""
    if scale == "none":
        return None
    if not bounded:
        return f"{thing} with bound_scale {scale} needs a bound to scale, got none. Set lower or upper, or drop it."
    if scale in BY_TOKEN and (level != "token" or agg is not None):
        return (
            f"{thing} with bound_scale {scale} needs level token, got {level}. It belongs to single tokens; "
            "bounds on means scale with inv_sqrt_length."
        )
    if scale == "inv_sqrt_length" and agg != "mean":
        same = " A sum within b·√T is a mean within b/√T: take the mean." if agg == "sum" else ""
        return (
            f"{thing} with bound_scale inv_sqrt_length needs a mean over a segment or sequence, got {agg or level}. "
            f"It is the mean whose spread falls as 1/√T.{same}"
        )
    return None


def batch_bounds_problem(
    thing: str, bounds: BatchBounds | None, scale: BoundScale, *, fixed: tuple[str, ...]
) -> str | None:
    """Why bounds of the batch cannot stand beside the numbers in `fixed`, or be scaled."""
    if bounds is None:
        return None
    if fixed:
        return f"{thing} with bounds needs no {' and '.join(fixed)}, got both. They are computed from the batch; drop one of the two."
    if scale != "none":
        return f"{thing} with bounds needs bound_scale none, got {scale}. A bound computed from the batch is one for all units; drop one."
    return None


Scope = Literal["trained", "kept"]


class Limit(Config):
    """A safety bound on log_r, so that no exponential overflows; part of a framework's exact numbers."""

    bound: Number = Field(gt=0, description="log_r, or what is gathered from it, is held within [-bound, bound].")
    at: Literal["token", "gathered"] = Field(
        default="token", description="Where it bites: on each token before gathering, or on the gathered value."
    )


def side(bound: float | None) -> str:
    """A bound as errors write it."""
    return "open" if bound is None else f"{bound:g}"
