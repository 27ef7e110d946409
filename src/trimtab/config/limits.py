"""What gates and weights say alike: over which tokens they gather, and how far log_r may go."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trimtab.config.base import Config, Number

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
