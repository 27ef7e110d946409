"""The weight of each token: a ratio at some level, held within bounds or zeroed outside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.correction import BY_PREFIX, BY_SEGMENT, Weight
from trimtab.core.batch import Batch
from trimtab.core.bounds import UnitBounds, bounds_of_weight, is_fixed
from trimtab.core.layout import Layout, least_before, prefix_sums
from trimtab.core.ratio import is_inside, log_bound, saturating_cast


@dataclass(frozen=True, eq=False)
class Weighing:
    """A weight per unit before it is spread over the tokens, with the raw ratio it came from (in log space)."""

    weight: Weight
    log_raw: Float[Tensor, "*units"]
    value: Float[Tensor, "*units"]
    counted: Float[Tensor, "*units"]
    units: Layout | None  # None: each token is a unit
    scope: Float[Tensor, "*tokens"]  # the tokens it was gathered over
    bounds: UnitBounds  # in log space

    def spread(self, value: Float[Tensor, "*units"]) -> Float[Tensor, "*#tokens"]:
        """A value per unit, laid over the tokens."""
        return value if self.units is None else self.units.spread(value)


def weighing(weight: Weight, pair: str, batch: Batch, scope: Float[Tensor, "*tokens"]) -> Weighing:
    """The bounded ratio of each unit, gathered over `scope`. A ratio too large for the type takes its largest number, never inf."""
    log_raw, counted = batch.log_r_over(scope, pair, weight.limit), scope
    if weight.level in BY_PREFIX:
        log_raw = saturating_cast(_up_to_each(weight.level, log_raw, scope, batch), log_raw.dtype)
    alone = weight.level == "token" or weight.level in BY_PREFIX
    units = None if alone else batch.turns if weight.level in BY_SEGMENT else batch.layout
    if units is not None:
        counted, total = batch.count(units, scope), batch.sums(units, log_raw)
        product = weight.level in ("sequence", "segment_product")
        log_raw = saturating_cast(total if product else total / counted.clamp(min=1.0), log_raw.dtype)
    if weight.limit is not None and weight.limit.at == "gathered":
        log_raw = log_raw.clamp(-weight.limit.bound, weight.limit.bound)
    bounds = bounds_of_weight(weight, batch, log_raw, counted)
    return Weighing(weight, log_raw, bound_ratio(log_raw, weight, bounds), counted, units, scope, bounds)


def _up_to_each(level: str, log_r: Tensor, scope: Tensor, batch: Batch) -> Float[Tensor, "*tokens"]:
    """The product of the ratios up to each token, or its own times the least before it; in log space, 0 outside `scope`."""
    if level == "prefix":
        return prefix_sums(batch.layout, log_r) * scope
    return (log_r + least_before(batch.layout, log_r, scope)) * scope


def bound_ratio(log_raw: Tensor, weight: Weight, bounds: UnitBounds | None = None) -> Tensor:
    """A raw ratio, given in log space, held within the bounds of a weight, or 0 outside them. `bounds`: those found for each unit.

    What lies outside is found by logarithms, as in gates: e^(log 3) is not 3 in floating point, and bounds are closed.
    """
    raw, most = log_raw.exp(), torch.finfo(log_raw.dtype).max
    unit_bounds = bounds if bounds is not None else UnitBounds(log_bound(weight.lower), log_bound(weight.upper))
    if weight.outside == "zero":
        return raw.clamp_(max=most) * is_inside(log_raw, unit_bounds.lower, unit_bounds.upper)
    if is_fixed(weight):
        return raw.clamp_(min=weight.lower, max=most if weight.upper is None else weight.upper)
    lower, upper = unit_bounds.of_ratio(raw)
    raw.clamp_(max=most)
    raw = raw if lower is None else torch.maximum(raw, lower)
    return raw if upper is None else torch.minimum(raw, upper)


def token_weights(weighing: Weighing, batch: Batch, over: str | None) -> Float[Tensor, "*#tokens"]:
    """The weights over the tokens, divided by their mean: of tokens where each token or turn has its own, else of sequences."""
    if over is None:
        return weighing.spread(weighing.value)
    by_token = weighing.weight.level in ("token", *BY_SEGMENT, *BY_PREFIX)
    if over == "batch":
        return weighing.spread(_over_mean(weighing, batch, by_token))
    return _over_group_means(weighing, batch, by_token)


def _over_mean(weighing: Weighing, batch: Batch, by_token: bool) -> Tensor:
    """The weights over their mean in the whole batch."""
    ranks = batch.layout.ranks
    share = weighing.counted if by_token else weighing.counted.clamp(max=1.0).mul(ranks.row_share)
    share = share if weighing.units is None else share.double()  # a turn's weight times its length may leave float32
    sums = torch.stack([(weighing.value * share).sum(dtype=torch.float64), share.sum(dtype=torch.float64)])
    total, number = ranks.total(sums)
    mean = total / number.clamp(min=1.0)
    return weighing.value / torch.where(mean > _TINY, mean, 1.0).to(weighing.value.dtype)


def _over_group_means(weighing: Weighing, batch: Batch, by_token: bool) -> Float[Tensor, "*#tokens"]:
    """The weights over the mean of their group, whose sequences are all here."""
    assert batch.group is not None
    layout, value = batch.layout, weighing.spread(weighing.value)
    if by_token:
        total, number = layout.sums((value * weighing.scope).double()), layout.sums(weighing.scope)
    else:
        number = weighing.counted.clamp(max=1.0).double()
        total = weighing.value.double() * number
    totals, numbers = (torch.zeros_like(each).index_add_(0, batch.group, each)[batch.group] for each in (total, number))
    mean = totals / numbers.clamp(min=1.0)
    return value / layout.spread(torch.where(mean > _TINY, mean, 1.0).to(value.dtype))


_TINY = 1e-8
"""A mean that nothing is divided by."""
