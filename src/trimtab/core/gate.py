"""A gate on a batch: one statistic per unit, which units lie inside the bounds, and what that means for each token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.correction import Gate
from trimtab.config.divergences import DIVERGENCES
from trimtab.core.batch import Batch
from trimtab.core.bounds import UnitBounds, bounds_of_gate
from trimtab.core.layout import Layout
from trimtab.core.quantiles import within_budget
from trimtab.core.ratio import above, at_most, below, saturating_cast


@dataclass(frozen=True, eq=False)
class GateResult:
    """What a gate found. Ratios stand in log space. `low` and `high` are one tensor except for agg `every`."""

    gate: Gate
    scope: Float[Tensor, "*tokens"]  # the tokens it looked at
    units: Layout | None  # None: each token is a unit
    counted: Float[Tensor, "*units"]  # tokens behind each statistic; 0: none, the unit does not count
    low: Float[Tensor, "*units"]
    high: Float[Tensor, "*units"]
    inside: Float[Tensor, "*units"]  # within the bounds
    passes: Float[Tensor, "*#tokens"]  # inside, or the gate does not act here
    bounds: UnitBounds


# Two answers, a gate on the mean of k1 (−log r) with upper 0.5, when negative_advantage:
#                          answer 1               answer 2
#     log r                −0.2  −0.4   (masked)  −1.0   0.2  −1.0
#     scope                 1     1      0         1     1     1
#     value                 0.2   0.4    0         1.0  −0.2   1.0
#     counted, sum          2, 0.6                 3, 1.8
#     low = high            0.3                    0.6
#     inside                1                      0
#     mean advantage       −1                      1
#     acts                  1                      0      it is not negative
#     passes                1     1      1         1     1     1      answer 2 would fall if it were a wrong one
def gate_result(gate: Gate, pair: str, batch: Batch, scope: Float[Tensor, "*tokens"]) -> GateResult:
    """What a gate finds among the tokens in `scope`; those outside hold neutral values and pass."""
    units = {"segment": lambda: batch.turns, "sequence": lambda: batch.layout}.get(gate.level, lambda: None)()
    counted = scope if units is None else batch.count(units, scope)
    low, high = _statistic(gate, token_values(gate, pair, batch, scope), units, scope, counted, batch)
    bounds = bounds_of_gate(gate, batch, low, high, counted)
    inside = _inside(gate, bounds, low, high, scope, batch)
    passes = _passes(gate, pair, batch, scope, units, counted, inside)
    return GateResult(gate, scope, units, counted, low, high, inside, passes, bounds)


def token_values(gate: Gate, pair: str, batch: Batch, scope: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """The metric of each token, 0 outside `scope`. Log-ratios are masked before anything that can overflow."""
    divergence = DIVERGENCES[gate.metric]
    _, formula = divergence.forms[gate.direction]
    if divergence.of == "age":
        assert batch.age is not None
        return batch.age * scope
    if divergence.of == "head":
        return batch.over_head(gate.metric, gate.direction, pair) * scope
    if divergence.of == "probabilities":
        target, base = pair.split("/")
        return formula(torch, None, batch.probability(target), batch.probability(base)) * scope
    value = formula(torch, batch.log_r_over(scope, pair, gate.limit), None, None)
    return value * scope if gate.metric == "mult_prob_error" else value  # which is 1 where log r is 0


def _statistic(
    gate: Gate, value: Tensor, units: Layout | None, scope: Tensor, counted: Tensor, batch: Batch
) -> tuple[Tensor, Tensor]:
    """One value per unit, as its least and greatest for agg `every`; 0 for a unit without tokens."""
    if units is None:
        return value, value
    if gate.agg in ("mean", "sum"):
        total = batch.sums(units, value)  # in float64: the result is one rounding away from a bound of the working type
        low = high = saturating_cast(total / counted.clamp(min=1.0) if gate.agg == "mean" else total, value.dtype)
    else:
        most = torch.finfo(value.dtype).max
        outside = (1.0 - scope).mul_(most)  # 0 or the largest number, which leaves no value outside in front
        ends = units.dip(value + outside), units.peak(torch.sub(value, outside, out=outside))
        least, greatest = (torch.where(counted > 0, end, 0.0) for end in ends)
        low, high = {"min": (least, least), "max": (greatest, greatest)}.get(gate.agg or "", (least, greatest))
    if gate.limit is not None and gate.limit.at == "gathered":
        held = high.clamp(-gate.limit.bound, gate.limit.bound)
        return held if low is high else low.clamp(-gate.limit.bound, gate.limit.bound), held
    return low, high


def _inside(gate: Gate, bounds: UnitBounds, low: Tensor, high: Tensor, scope: Tensor, batch: Batch) -> Tensor:
    if gate.agg == "budget":
        return within_budget(high, scope, gate.upper or 0.0, batch.layout.ranks, strict=gate.strict)
    return bounds.contains(low, high)


ACTS = {"negative_advantage": below, "nonpositive_advantage": at_most, "positive_advantage": above}


def _passes(
    gate: Gate, pair: str, batch: Batch, scope: Tensor, units: Layout | None, counted: Tensor, inside: Tensor
) -> Float[Tensor, "*#tokens"]:
    """1 on the tokens that get by: their unit is inside, or the gate does not act on them."""
    inside_here = inside if units is None else units.spread(inside)
    if gate.when == "always":
        return inside_here
    advantages = batch.advantages
    assert advantages is not None
    if gate.when == "moving_away":
        acts = above(advantages * batch.log_r[pair], 0.0)
    elif units is not None and gate.advantage_of == "unit":
        mean = saturating_cast(units.sums(advantages * scope) / counted.clamp(min=1.0), inside.dtype)
        acts = units.spread(ACTS[gate.when](mean, 0.0))
    else:
        acts = ACTS[gate.when](advantages, 0.0)
    return torch.maximum(1.0 - acts, inside_here)
