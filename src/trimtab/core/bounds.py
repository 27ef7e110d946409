"""The bounds of a gate or weight on a batch: numbers as they are, scaled by what each unit holds, or found over all units.

Bounds stand where the statistic does: in log space for ratios, where on-policy data sits at 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.bounds import BatchBounds, BoundScale
from trimtab.config.correction import Gate, Weight
from trimtab.config.divergences import DIVERGENCES
from trimtab.core.batch import Batch
from trimtab.core.quantiles import nearest_share, upper_for_ess
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import is_inside, log_bound

Bound = float | Tensor | None
"""One number, one for each unit, or none: an open side."""


@dataclass(frozen=True, eq=False)
class UnitBounds:
    """What a statistic has to lie within."""

    lower: Bound
    upper: Bound

    def contains(self, low: Tensor, high: Tensor) -> Float[Tensor, "*units"]:
        """1 where the least and the greatest value of a unit lie inside."""
        if low is high:
            return is_inside(low, self.lower, self.upper)
        return is_inside(low, self.lower, None) * is_inside(high, None, self.upper)

    def of_ratio(self, like: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Those of the ratio, where these are of its logarithm; never inf."""
        most = torch.finfo(like.dtype).max

        def ratio(bound: Bound) -> Tensor | None:
            if bound is None:
                return None
            return torch.as_tensor(bound, dtype=like.dtype, device=like.device).exp().clamp(max=most)

        return ratio(self.lower), ratio(self.upper)


def gate_bounds(gate: Gate) -> tuple[float | None, float | None]:
    """The bounds in the space of the statistic: logarithms for ratios, so that a bound met exactly is inside."""
    return (log_bound(gate.lower), log_bound(gate.upper)) if gate.metric == "ratio" else (gate.lower, gate.upper)


def is_fixed(part: Gate | Weight) -> bool:
    """Whether its bounds are the numbers it names."""
    return part.bounds is None and part.bound_scale == "none"


# A gate on the ratio with upper 2 and bound_scale entropy, three tokens (log 2 = 0.693):
#     entropy            2.0    0.5    0.0
#     bound on log r     1.386  0.347  0        ratios 4, 1.41, 1: where the policy is certain, no difference is noise
#     log r              0.7    0.7    0
#     inside             1      0      1
def bounds_of_gate(gate: Gate, batch: Batch, low: Tensor, high: Tensor, counted: Tensor) -> UnitBounds:
    """What the values of a gate have to lie within, for units of so many tokens."""
    lower, upper = gate_bounds(gate)
    if is_fixed(gate):
        return UnitBounds(lower, upper)
    if gate.bounds is not None:
        one_sided = DIVERGENCES[gate.metric].least == DIVERGENCES[gate.metric].neutral
        return _nearest(gate.bounds, low, high, counted, batch.layout.ranks, one_sided=one_sided)
    scale = _scale(gate.bound_scale, batch, counted)
    if gate.metric == "mult_prob_error":  # a factor, whose logarithm is scaled too
        return UnitBounds(*(None if each is None else (scale * math.log(each)).exp() for each in (lower, upper)))
    return UnitBounds(*(None if each is None else scale * each for each in (lower, upper)))


def bounds_of_weight(weight: Weight, batch: Batch, log_raw: Tensor, counted: Tensor) -> UnitBounds:
    """What the logarithms of raw weights have to lie within."""
    lower, upper = log_bound(weight.lower), log_bound(weight.upper)
    if is_fixed(weight):
        return UnitBounds(lower, upper)
    ranks = batch.layout.ranks
    if weight.bounds is not None and weight.bounds.ess is not None:
        return UnitBounds(lower, upper_for_ess(log_raw, counted, lower, weight.bounds.ess, ranks))
    if weight.bounds is not None:
        return _nearest(weight.bounds, log_raw, log_raw, counted, ranks, one_sided=False)
    scale = _scale(weight.bound_scale, batch, counted)
    return UnitBounds(*(None if each is None else scale * each for each in (lower, upper)))


def _nearest(
    bounds: BatchBounds, low: Tensor, high: Tensor, counted: Tensor, ranks: Ranks, *, one_sided: bool
) -> UnitBounds:
    """Bounds as far from on-policy, on each side, as the share of the units that is to be kept reaches."""
    farthest = high if one_sided else high.abs() if low is high else torch.maximum(low.abs(), high.abs())
    distance = nearest_share(farthest, counted, bounds.keep or 1.0, ranks)
    return UnitBounds(None if one_sided else -distance, distance)


def _scale(scale: BoundScale, batch: Batch, counted: Tensor) -> Float[Tensor, "*units"]:
    """What each unit's bounds are multiplied by; never negative."""
    if scale == "entropy":
        assert batch.entropy is not None
        return batch.entropy
    if scale == "one_minus_p":
        return batch.improbability("behavior")
    return counted.clamp(min=1.0).rsqrt()
