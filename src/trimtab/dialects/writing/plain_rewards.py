"""Rewards said without a bias and a factor where the group's deviation divides them away."""

from __future__ import annotations

from dataclasses import replace

from trimtab.config.advantages import Grpo, Shaping
from trimtab.dialects.reading import Reading


def with_plain_rewards(reading: Reading) -> Reading:
    """The same advantages from rewards as they come, bounded where the scaled ones were.

    (s·(R + b) − s·(μ + b)) / (s·σ + eps) = (R − μ) / (σ + eps/s): with s 10 and eps 1e-5 GRPO's eps is 1e-6. A clip of s·(R + b) at
    ±c is one of R at ±c/s − b.
    """
    estimator = reading.advantage
    if not isinstance(estimator, Grpo) or len(reading.shaping) != 1:
        return reading
    step = reading.shaping[0]
    if not estimator.std or step.scale <= 0 or step.normalise is not None or (step.bias, step.scale) == (0, 1):
        return reading
    lower, upper = (None if bound is None else bound / step.scale - step.bias for bound in (step.lower, step.upper))
    rest = step.but(bias=0.0, scale=1.0, lower=lower, upper=upper)
    return replace(
        reading,
        advantage=estimator.but(eps=float(f"{estimator.eps / step.scale:.12g}")),
        shaping=() if rest == Shaping() else (rest,),
    )
