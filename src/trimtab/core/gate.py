"""A gate on a batch: one statistic per unit, a verdict, and what it means for each token."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import Gate
from trimtab.core.batch import Batch
from trimtab.core.layout import Layout
from trimtab.core.metric import FROM_LOG_RATIO, FROM_PROBABILITIES
from trimtab.core.order import within_budget
from trimtab.core.ratio import is_inside


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a gate found. Ratios stand in log space. `low` and `high` are one tensor except for agg `every`."""

    gate: Gate
    pair: str
    low: Float[Tensor, "*units"]
    high: Float[Tensor, "*units"]
    counted: Float[Tensor, "*units"]  # tokens behind each statistic; 0: none, the unit does not count
    units: Layout | None  # None: each token is a unit
    stays: Float[Tensor, "*units"]  # inside the bounds
    scope: Float[Tensor, "*tokens"]  # the tokens judged
    passes: Float[Tensor, "*#tokens"]  # inside, or the gate does not act here; broadcasts against the tokens


def verdict(gate: Gate, pair: str, batch: Batch, scope: Float[Tensor, "*tokens"]) -> Verdict:
    """Judge the tokens in `scope`; tokens outside it hold neutral values and pass."""
    value = token_values(gate, pair, batch, scope)
    units = {
        "token": None,
        "batch": None,
        "segment": batch.turns if gate.level == "segment" else None,
        "sequence": batch.layout,
    }[gate.level]
    counted = scope if units is None else units.total(scope)
    low, high = _gathered(gate, value, units, scope, counted)
    lower, upper = bounds(gate)
    if gate.agg == "budget":
        stays = within_budget(value, scope, gate.upper or 0.0, batch.layout.ranks)
    elif low is high:
        stays = is_inside(high, lower, upper)
    else:
        stays = is_inside(low, lower, None).mul_(is_inside(high, None, upper))
    return Verdict(
        gate, pair, low, high, counted, units, stays, scope, _passes(gate, pair, batch, units, scope, counted, stays)
    )


def token_values(gate: Gate, pair: str, batch: Batch, scope: Tensor) -> Tensor:
    """The metric of each token; neutral outside `scope`. Log-ratios are masked before anything that can overflow."""
    kind = (gate.metric, gate.direction)
    if kind in FROM_PROBABILITIES:
        target, base = pair.split("/")
        value = FROM_PROBABILITIES[kind](batch.probability(target), batch.probability(base))
        return value if scope is batch.valid else value.mul_(scope)
    log_r = batch.log_r[pair] if scope is batch.valid else batch.log_r[pair] * scope
    if gate.limit is not None and gate.limit.at == "token":
        log_r = log_r.clamp(-gate.limit.bound, gate.limit.bound)
    value = FROM_LOG_RATIO[kind](log_r)
    return value.mul_(scope) if gate.metric == "mult_prob_error" else value


def _gathered(gate: Gate, value: Tensor, units: Layout | None, scope: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    if units is None:
        return value, value
    if gate.agg in ("mean", "sum"):
        total = units.total(value)
        gathered = total / counted.clamp(min=1.0) if gate.agg == "mean" else total
        if gate.limit is not None and gate.limit.at == "gathered":
            gathered = gathered.clamp(-gate.limit.bound, gate.limit.bound)
        return gathered, gathered
    has = counted.clamp(max=1.0)
    outside = (scope - 1.0).mul_(torch.finfo(value.dtype).max)  # 0 in scope, the lowest number elsewhere
    high = units.peak(value + outside) if gate.agg in ("max", "every") else None
    low = units.peak(outside.sub_(value)).neg_() if gate.agg in ("min", "every") else None
    low, high = (
        torch.nan_to_num(each, neginf=0.0, posinf=0.0) * has if each is not None else None for each in (low, high)
    )
    if low is None or high is None:
        only = high if low is None else low
        assert only is not None
        return only, only
    return low, high


def bounds(gate: Gate) -> tuple[float | None, float | None]:
    """The bounds in the space of the statistic: logarithms for ratios, so that a bound met exactly is inside."""
    if gate.metric != "ratio":
        return gate.lower, gate.upper
    return (None if gate.lower is None else math.log(gate.lower)), (
        None if gate.upper is None else math.log(gate.upper)
    )


def _passes(
    gate: Gate, pair: str, batch: Batch, units: Layout | None, scope: Tensor, counted: Tensor, stays: Tensor
) -> Tensor:
    """1 where a token gets by: its unit stays, or the gate does not act on it."""
    if gate.when == "always":
        return stays if units is None else units.spread(stays)
    assert batch.advantages is not None
    if gate.when == "moving_away":
        acts = torch.gt(batch.advantages * batch.log_r[pair], 0.0, out=torch.empty_like(scope))
        return (1.0 - acts).maximum(stays if units is None else units.spread(stays))
    per_unit = units is not None and gate.advantage_of == "unit"
    advantage = batch.advantages
    if per_unit:
        advantage = units.total(advantage * scope) / counted.clamp(min=1.0)  # pyright: ignore[reportOptionalMemberAccess]
    compare = {"negative_advantage": torch.lt, "nonpositive_advantage": torch.le, "positive_advantage": torch.gt}[
        gate.when
    ]
    acts = compare(advantage, 0.0, out=torch.empty_like(advantage))
    if units is None:
        return (1.0 - acts).maximum(stays)
    if per_unit:
        return units.spread((1.0 - acts).maximum(stays))
    return (1.0 - acts).maximum(units.spread(stays))
