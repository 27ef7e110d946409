"""The weight of each token: a ratio at some level, held within bounds or zeroed outside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import Weight
from trimtab.core.batch import Batch, Scope
from trimtab.core.layout import Layout
from trimtab.core.ratio import is_inside, log_bound, rounded


@dataclass(frozen=True, eq=False)
class Weighing:
    """A weight per unit before it is laid over the tokens, with the raw ratio it came from (in log space)."""

    weight: Weight
    log_raw: Float[Tensor, "*units"]
    value: Float[Tensor, "*units"]
    counted: Float[Tensor, "*units"]
    units: Layout | None  # None: each token is a unit


def weighing(weight: Weight, pair: str, scope: Scope) -> Weighing:
    """The bounded ratio of each unit. A ratio too large for the type takes its largest number, never inf."""
    batch = scope.batch
    if weight.level in ("token", "segment"):
        scope = Scope(batch, scope.laid())
    units = {"token": None, "segment": batch.turns if weight.level == "segment" else None}.get(
        weight.level, batch.layout
    )
    log_r = batch.limited(pair, weight.limit)
    if units is None:
        counted, gathered = scope.tokens, log_r if scope.full_rows else log_r * scope.tokens
    elif units is batch.layout and scope.full_rows:
        counted, gathered = scope.lengths(), scope.alive(batch.row_total(pair, weight.limit))
    else:
        counted = units.count(scope.tokens) if units is not batch.layout else scope.lengths()
        gathered = units.sums(log_r * scope.tokens)
        gathered = scope.alive(gathered) if units is batch.layout else gathered
    if weight.level in ("geometric", "segment"):
        gathered = gathered / counted.clamp(min=1.0)
    gathered = gathered if units is None else rounded(gathered, log_r.dtype)
    if weight.limit is not None and weight.limit.at == "gathered":
        gathered = gathered.clamp(-weight.limit.bound, weight.limit.bound)
    value = bounded(gathered, weight, out=batch.room() if units is None else None)
    return Weighing(weight, gathered, value, counted, units)


def bounded(log_raw: Tensor, weight: Weight, out: Tensor | None = None) -> Tensor:
    """A raw ratio, given in log space, held within the bounds of a weight, or 0 outside them.

    What lies outside is found by logarithms, as in gates: e^(log 3) is not 3 in floating point, and bounds are closed.
    """
    raw, most = torch.exp(log_raw, out=out), torch.finfo(log_raw.dtype).max
    if weight.outside == "clamp":
        return raw.clamp_(min=weight.lower, max=most if weight.upper is None else weight.upper)
    inside = is_inside(log_raw, log_bound(weight.lower), log_bound(weight.upper))
    return raw.clamp_(max=most).mul_(inside)


def normalized(weighing: Weighing, batch: Batch) -> Tensor:
    """The weights over their mean in the whole batch: over tokens where each token or turn has its own, else over sequences."""
    ranks = batch.layout.ranks
    by_token = weighing.weight.level in ("token", "segment")
    share = weighing.counted if by_token else weighing.counted.clamp(max=1.0).mul(ranks.row_share)
    share = share if weighing.units is None else share.double()  # a turn's weight times its length may leave float32
    sums = torch.stack([(weighing.value * share).sum(dtype=torch.float64), share.sum(dtype=torch.float64)])
    total, number = ranks.summed(sums)
    mean = total / number.clamp(min=1.0)
    return weighing.value / torch.where(mean > 1e-8, mean, 1.0).to(weighing.value.dtype)
