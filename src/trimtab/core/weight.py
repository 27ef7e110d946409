"""The weight of each token: a ratio at some level, held within bounds or zeroed outside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import BY_PREFIX, Weight
from trimtab.core.batch import Batch
from trimtab.core.layout import Layout
from trimtab.core.prefix import least_before, prefix_sums
from trimtab.core.ratio import is_inside, log_bound, saturating_cast


@dataclass(frozen=True, eq=False)
class Weighing:
    """A weight per unit before it is spread over the tokens, with the raw ratio it came from (in log space)."""

    weight: Weight
    log_raw: Float[Tensor, "*units"]
    value: Float[Tensor, "*units"]
    counted: Float[Tensor, "*units"]
    units: Layout | None  # None: each token is a unit


def weighing(weight: Weight, pair: str, batch: Batch, scope: Float[Tensor, "*tokens"]) -> Weighing:
    """The bounded ratio of each unit, gathered over `scope`. A ratio too large for the type takes its largest number, never inf."""
    log_raw, counted = batch.log_r_over(scope, pair, weight.limit), scope
    if weight.level in BY_PREFIX:
        log_raw = saturating_cast(_up_to_each(weight.level, log_raw, scope, batch), log_raw.dtype)
    alone = weight.level == "token" or weight.level in BY_PREFIX
    units = None if alone else batch.turns if weight.level == "segment" else batch.layout
    if units is not None:
        counted, total = batch.count(units, scope), batch.sums(units, log_raw)
        product = weight.level == "sequence"
        log_raw = saturating_cast(total if product else total / counted.clamp(min=1.0), log_raw.dtype)
    if weight.limit is not None and weight.limit.at == "gathered":
        log_raw = log_raw.clamp(-weight.limit.bound, weight.limit.bound)
    return Weighing(weight, log_raw, bound_ratio(log_raw, weight), counted, units)


def _up_to_each(level: str, log_r: Tensor, scope: Tensor, batch: Batch) -> Float[Tensor, "*tokens"]:
    """The product of the ratios up to each token, or its own times the least before it; in log space, 0 outside `scope`."""
    if level == "prefix":
        return prefix_sums(batch.layout, log_r) * scope
    return (log_r + least_before(batch.layout, log_r, scope)) * scope


def bound_ratio(log_raw: Tensor, weight: Weight) -> Tensor:
    """A raw ratio, given in log space, held within the bounds of a weight, or 0 outside them.

    What lies outside is found by logarithms, as in gates: e^(log 3) is not 3 in floating point, and bounds are closed.
    """
    raw, most = log_raw.exp(), torch.finfo(log_raw.dtype).max
    if weight.outside == "clamp":
        return raw.clamp_(min=weight.lower, max=most if weight.upper is None else weight.upper)
    return raw.clamp_(max=most) * is_inside(log_raw, log_bound(weight.lower), log_bound(weight.upper))


def over_mean(weighing: Weighing, batch: Batch) -> Tensor:
    """The weights over their mean in the whole batch: over tokens where each token or turn has its own, else over sequences."""
    ranks = batch.layout.ranks
    by_token = weighing.weight.level in ("token", "segment", *BY_PREFIX)
    share = weighing.counted if by_token else weighing.counted.clamp(max=1.0).mul(ranks.row_share)
    share = share if weighing.units is None else share.double()  # a turn's weight times its length may leave float32
    sums = torch.stack([(weighing.value * share).sum(dtype=torch.float64), share.sum(dtype=torch.float64)])
    total, number = ranks.total(sums)
    mean = total / number.clamp(min=1.0)
    return weighing.value / torch.where(mean > 1e-8, mean, 1.0).to(weighing.value.dtype)
