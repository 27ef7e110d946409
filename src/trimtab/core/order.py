"""Order statistics without sorting, without reading the data on the host, and over any number of ranks.

A float32 and its bit pattern, read as an integer, are ordered alike. Counting by the upper 16 bits and then by the lower
ones, or bisecting over all 32, finds an exact order statistic in a few passes, which sums over ranks turn into that of the
whole batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.core.ranks import Ranks

_LEAST, _MOST, _INFINITY, _HALF = -(2**31), 2**31 - 1, 0x7F800000, 0xFFFF


def _ordered(value: Tensor) -> Tensor:
    """Float32 values as int32 in the same order."""
    bits = (value.to(torch.float32) + 0.0).contiguous().view(torch.int32)  # + 0.0: −0 and 0 are one value
    return bits ^ ((bits >> 31) & _MOST)


def _value(ordered: Tensor) -> Tensor:
    """The float32 behind an ordered integer; the map is its own inverse."""
    bits = ordered.to(torch.int32)
    return (bits ^ ((bits >> 31) & _MOST)).view(torch.float32)


def quantiles(
    value: Float[Tensor, "*n"], counted: Float[Tensor, "*n"], points: Sequence[float], ranks: Ranks
) -> Float[Tensor, " points"]:
    """For each point q, the least value with at least a fraction q of the counted values at or below it; 0 if there are none."""
    place = (_ordered(value).flatten().to(torch.int64)).sub_(_LEAST)  # 0 … 2³² − 1
    present = counted.flatten().to(torch.int64)
    high, low = place >> 16, place & _HALF
    whole = _counts(high, present, ranks)
    number = whole[-1]
    needed = (
        torch.tensor(points, dtype=torch.float64, device=value.device).mul(number).ceil().clamp(min=1).to(torch.int64)
    )
    bins = torch.searchsorted(whole, needed).clamp(max=_HALF)
    before = torch.where(bins > 0, whole[(bins - 1).clamp(min=0)], 0)
    fine = torch.stack([_counts(low, present * (high == each), ranks) for each in bins])
    within = torch.searchsorted(fine, (needed - before).unsqueeze(-1)).squeeze(-1).clamp(max=_HALF)
    return torch.where(number > 0, _value((bins << 16) + within + _LEAST), 0.0)


def _counts(bins: Tensor, present: Tensor, ranks: Ranks) -> Tensor:
    """How many present values lie in each of 65536 bins or before it, over all ranks."""
    return ranks.summed(bins.new_zeros(_HALF + 1).index_add_(0, bins, present)).cumsum(0)


def within_budget(
    value: Float[Tensor, "*n"], counted: Float[Tensor, "*n"], most: float, ranks: Ranks, *, strict: bool = False
) -> Float[Tensor, "*n"]:
    """1 for the values that stay when the largest go until the mean of the counted rest is at most `most`.

    Values are never negative, so the mean of those at or below a threshold grows with it. Equal values fall together.
    `strict`: until it is below `most`, or only the smallest are left.
    """
    value = value.clamp(max=torch.finfo(torch.float32).max)
    order, below = _ordered(value), torch.empty_like(value)
    low = torch.full((), -1, dtype=torch.int64, device=value.device)
    high = torch.full_like(low, _INFINITY)
    if strict:
        places = torch.where(counted > 0, order.to(torch.int64), _INFINITY)
        low = -ranks.greatest(-places.amin() if places.numel() else -high)
    for _ in range(32):
        middle = (low + high + 1) >> 1
        kept = torch.le(order, middle.to(torch.int32), out=torch.empty_like(order)).to(value.dtype).mul_(counted)
        sums = torch.stack([torch.mul(value, kept, out=below).sum(dtype=torch.float64), kept.sum(dtype=torch.float64)])
        total, number = ranks.summed(sums)
        fits = total < most * number if strict else total <= most * number
        low = torch.where(fits, middle, low)
        high = torch.where(fits, high, middle - 1)
    return torch.le(order, low.to(torch.int32), out=torch.empty_like(order)).to(value.dtype)


def largest(
    value: Float[Tensor, "*n"], counted: Float[Tensor, "*n"], number: Float[Tensor, ""], ranks: Ranks
) -> Float[Tensor, "*n"]:
    """1 for the `number` largest counted values over all ranks, all of them if there are fewer. Equal values go together."""
    order, counts = _ordered(value), counted.to(torch.int32)
    low = torch.full((), _LEAST, dtype=torch.int64, device=value.device)
    high = torch.full_like(low, _MOST)
    for _ in range(32):
        middle = (low + high + 1) >> 1
        here = torch.ge(order, middle.to(torch.int32), out=torch.empty_like(order)).mul_(counts).sum(dtype=torch.int64)
        enough = ranks.summed(here) >= number
        low = torch.where(enough, middle, low)
        high = torch.where(enough, high, middle - 1)
    return torch.ge(order, low.to(torch.int32), out=torch.empty_like(order)).mul_(counts).to(counted.dtype)
