"""Order statistics without sorting, without reading the data on the host, and over any number of ranks.

A float and its bit pattern, read as an integer of as many bits, are ordered alike. Counting by the upper 16 bits and then by
the lower ones, or bisecting over all of them, finds an exact order statistic in a few passes, which sums over ranks turn into
that of the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trimtab.core.ranks import Ranks

_BINS = 2**16
"""Bins of a count by half of the bits of a float32."""
_INFINITY = {torch.int32: 0x7F800000, torch.int64: 0x7FF0000000000000}


def _sortable(value: Tensor) -> Tensor:
    """Floats as integers in the same order: int64 for float64, int32 for all others, which float32 holds."""
    kind = torch.int64 if value.dtype == torch.float64 else torch.int32
    wide = value if kind == torch.int64 else value.to(torch.float32)
    bits = (wide + 0.0).contiguous().view(kind)  # + 0.0: −0 and 0 are one value
    return _flip(bits)


def _flip(bits: Tensor) -> Tensor:
    """Bit patterns as ordered integers, or these as bit patterns: the map is its own inverse."""
    facts = torch.iinfo(bits.dtype)
    return bits ^ ((bits >> (facts.bits - 1)) & facts.max)


def _middle(low: Tensor, high: Tensor) -> Tensor:
    """The mean of two integers, rounded up, where their sum may not fit the type."""
    return (low | high) - ((low ^ high) >> 1)


def _greatest_fitting(fits: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, rounds: int) -> Int[Tensor, ""]:
    """The greatest integer within [low, high] that fits, by halving; `low` is taken to, and what lies above one that does not, not to."""
    for _ in range(rounds):
        middle = _middle(low, high)
        good = fits(middle)
        low = torch.where(good, middle, low)
        high = torch.where(good, high, middle - 1)
    return low


def _as_value(order: Int[Tensor, ""], kind: torch.dtype) -> Float[Tensor, ""]:
    """The number that stands at a place of the order."""
    bits = _flip(order.to(torch.int64 if kind == torch.float64 else torch.int32))
    return bits.view(torch.float64 if kind == torch.float64 else torch.float32).to(kind)


_SLACK = 1.0 - 1e-12
"""A share of 0.07 of 100 is 7, and 0.07 · 100 in floating point is more."""


def nearest_share(
    distance: Float[Tensor, "*n"], counted: Float[Tensor, "*n"], share: float, ranks: Ranks
) -> Float[Tensor, ""]:
    """The least distance d such that at least a share of the counted ones, rounded up, is at most d; 0 if there are none.

    Distances are never negative, and d is one of them to the last bit: those that equal it lie within it too.
    """
    if distance.dtype != torch.float64:
        return quantiles(distance, counted, [share * _SLACK], ranks)[0].to(distance.dtype)
    order, there = _sortable(distance), counted > 0
    number = ranks.total(there.sum(dtype=torch.int64))
    needed = number.double().mul(share * _SLACK).ceil()

    def is_short(middle: Tensor) -> Tensor:
        return ranks.total(((order <= middle) & there).sum(dtype=torch.int64)) < needed

    low = torch.full((), -1, dtype=torch.int64, device=distance.device)
    last = _greatest_fitting(is_short, low, torch.full_like(low, _INFINITY[order.dtype]), 64)
    return torch.where(number > 0, _as_value(last + 1, distance.dtype), 0.0)


def upper_for_ess(
    log_raw: Float[Tensor, "*n"], counted: Float[Tensor, "*n"], log_lower: float | None, share: float, ranks: Ranks
) -> Float[Tensor, ""]:
    """The greatest log u >= 0, none beyond the greatest ratio, with (Σw)² >= share · n · Σw² over the counted w = min(r, u).

    Raising u from where it cuts k ratios adds k to Σw and 2·k·u to Σw², and Σw² <= u·Σw: the effective share never rises with u. It
    does not change if all weights are divided by u, so nothing overflows.
    """
    there = counted.clamp(max=1.0)
    low = torch.zeros((), dtype=torch.int64, device=log_raw.device)
    positive = torch.where(there > 0, log_raw, 0.0).clamp(min=0.0)
    top = ranks.greatest(positive.amax() if positive.numel() else positive.new_zeros(()))
    high = _sortable(top).to(torch.int64)

    def is_even(middle: Tensor) -> Tensor:
        bound = _as_value(middle, log_raw.dtype)
        apart = (log_raw - bound).clamp_(max=0.0)
        if log_lower is not None:
            apart = torch.maximum(apart, log_lower - bound)
        weight = apart.exp_().mul_(there)
        sums = torch.stack([each.sum(dtype=torch.float64) for each in (weight, weight.square(), there)])
        total, squares, number = ranks.total(sums)
        return total.square() >= share * number * squares

    return _as_value(_greatest_fitting(is_even, low, high, torch.iinfo(_sortable(top).dtype).bits), log_raw.dtype)


def quantiles(
    value: Float[Tensor, "*n"], counted: Float[Tensor, "*n"], points: Sequence[float], ranks: Ranks
) -> Float[Tensor, " points"]:
    """For each point q, the least value with at least a fraction q of the counted values at or below it; 0 if there are none.

    In float32: rounding keeps the order, so the quantile of rounded values is the quantile, rounded.
    """
    # Seven values 1 … 7, q = 0.5: the 4th smallest is wanted. Say 3, 4 and 5 share their upper 16 bits: one count by upper bits
    # finds 2 values before that bin and at least 4 up to it; a second count, by the lower bits of that bin alone, finds the
    # 4 − 2 = 2nd of its values, which is 4. All points share the two counts: a bin that was found has a number, its slot.
    order = _sortable(value.to(torch.float32)).flatten()
    high = torch.where(
        counted.flatten() > 0, (order >> 16).add_(_BINS // 2), _BINS
    )  # what does not count: a bin of its own
    cumulated = ranks.total(_counts(high, _BINS + 1)[:_BINS]).cumsum(0)
    number = cumulated[-1]
    share = torch.tensor(points, dtype=torch.float64, device=value.device)
    needed = share.mul(number).ceil().clamp(min=1).to(torch.int64)
    bins = torch.searchsorted(cumulated, needed).clamp(max=_BINS - 1)
    before = torch.where(bins > 0, cumulated[(bins - 1).clamp(min=0)], 0)
    slots = torch.full((_BINS + 1,), len(points), dtype=torch.int32, device=value.device)
    slots[bins] = torch.arange(len(points), dtype=torch.int32, device=value.device)
    place = slots.index_select(0, high).mul_(_BINS).add_(order & (_BINS - 1))
    fine = _counts(place, (len(points) + 1) * _BINS).view(-1, _BINS)[:-1]
    fine = ranks.total(fine.contiguous()).cumsum(-1)[slots[bins].long()]
    within = torch.searchsorted(fine, (needed - before).unsqueeze(-1)).squeeze(-1).clamp(max=_BINS - 1)
    values = _flip(((bins - _BINS // 2 << 16) + within).to(torch.int32)).view(torch.float32)
    return torch.where(number > 0, values, 0.0)


def _counts(place: Int[Tensor, " n"], number: int) -> Int[Tensor, " bins"]:
    """How many values lie in each of so many bins."""
    if place.device.type == "cpu" and not torch.compiler.is_compiling():
        return torch.bincount(place, minlength=number)  # three times as fast; elsewhere it would wait for the device
    return torch.zeros(number, dtype=torch.int64, device=place.device).index_add_(
        0, place, torch.ones_like(place, dtype=torch.int64)
    )


def within_budget(
    value: Float[Tensor, "*n"], counted: Float[Tensor, "*n"], most: float, ranks: Ranks, *, strict: bool = False
) -> Float[Tensor, "*n"]:
    """1 for the values that stay when the largest go until the mean of the counted rest is at most `most`.

    Values are never negative, so the mean of those at or below a threshold grows with it. The verdict is a threshold: equal
    values fall together, so that neither their order nor a split decides which of them a batch trains on.
    `strict`: until it is below `most`, or only the smallest are left.
    """
    value = value.clamp(max=torch.finfo(value.dtype).max)
    order, below = _sortable(value), torch.empty_like(value)
    low = torch.full((), -1, dtype=torch.int64, device=value.device)
    high = torch.full_like(low, _INFINITY[order.dtype])
    if strict:
        places = torch.where(counted > 0, order.to(torch.int64), high)
        low = -ranks.greatest(-places.amin() if places.numel() else -high)

    def fits(middle: Tensor) -> Tensor:
        kept = torch.le(order, middle.to(order.dtype), out=torch.empty_like(order)).to(value.dtype).mul_(counted)
        sums = torch.stack([torch.mul(value, kept, out=below).sum(dtype=torch.float64), kept.sum(dtype=torch.float64)])
        total, number = ranks.total(sums)
        return total < most * number if strict else total <= most * number

    low = _greatest_fitting(fits, low, high, torch.iinfo(order.dtype).bits)
    return torch.le(order, low.to(order.dtype), out=torch.empty_like(order)).to(value.dtype)


def largest(
    value: Float[Tensor, "*n"], counted: Float[Tensor, "*n"], number: Float[Tensor, ""], ranks: Ranks
) -> Float[Tensor, "*n"]:
    """1 for the `number` largest counted values over all ranks, all of them if there are fewer.

    Exactly that many: of values equal to the least that is taken, the first go, by rank and on each rank by token order.
    """
    order = _sortable(value)
    counts, facts = counted.to(order.dtype), torch.iinfo(order.dtype)
    low = torch.full((), facts.min, dtype=torch.int64, device=value.device)
    high = torch.full_like(low, facts.max)

    def is_enough(middle: Tensor) -> Tensor:
        enough = (
            torch.ge(order, middle.to(order.dtype), out=torch.empty_like(order)).mul_(counts).sum(dtype=torch.int64)
        )
        return ranks.total(enough) >= number

    low = _greatest_fitting(is_enough, low, high, facts.bits)
    least = low.to(order.dtype)
    there = counts.flatten() > 0
    above, ties = (order.flatten() > least) & there, (order.flatten() == least) & there
    left = number - ranks.total(above.sum(dtype=torch.int64))
    place = ties.cumsum(0, dtype=torch.int64) + _before(ties.sum(dtype=torch.int64), ranks)
    return (above | (ties & (place <= left))).reshape(value.shape).to(counted.dtype)


def _before(number_here: Int[Tensor, ""], ranks: Ranks) -> Int[Tensor, ""]:
    """How many the ranks before this one hold, where this one holds `here`."""
    each = number_here.new_zeros(ranks.number)
    each[ranks.place] = number_here
    return ranks.total(each)[: ranks.place].sum()
