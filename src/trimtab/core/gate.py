"""A gate on a batch: one statistic per unit, a verdict, and what it means for each token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import Gate
from trimtab.config.metrics import METRICS
from trimtab.core.batch import Batch, Scope
from trimtab.core.layout import Layout
from trimtab.core.metric import FROM_LOG_RATIO, FROM_PROBABILITIES, SIGN
from trimtab.core.order import within_budget
from trimtab.core.ratio import above, at_most, below, is_inside, log_bound, rounded


@dataclass(frozen=True, eq=False)
class Verdict:
    """What a gate found. Ratios stand in log space. `low` and `high` are one tensor except for agg `every`."""

    gate: Gate
    low: Float[Tensor, "*units"]
    high: Float[Tensor, "*units"]
    counted: Float[Tensor, "*units"]  # tokens behind each statistic; 0: none, the unit does not count
    units: Layout | None  # None: each token is a unit
    stays: Float[Tensor, "*units"]  # inside the bounds
    scope: Scope  # the tokens judged
    passes: Tensor  # inside, or the gate does not act here; per unit if `by_unit`, else per token
    by_unit: bool

    @property
    def by_row(self) -> bool:
        """Whether `passes` holds one verdict per sequence."""
        return self.by_unit and self.gate.level == "sequence"

    def laid(self) -> Float[Tensor, "*#tokens"]:
        """`passes` over the tokens."""
        return self.units.spread(self.passes) if self.by_unit and self.units is not None else self.passes


def verdict(gate: Gate, pair: str, scope: Scope) -> Verdict:
    """Judge the tokens in `scope`; tokens outside it hold neutral values and pass."""
    batch = scope.batch
    units = _units(gate, batch)
    if gate.level == "sequence":
        counted = scope.lengths()
        low, high = _row_statistic(gate, pair, scope, counted)
    else:  # below the level of sequences, rejected sequences are rejected tokens
        scope = Scope(batch, scope.laid())
        counted = scope.tokens if units is None else units.count(scope.tokens)
        low, high = _gathered(gate, token_values(gate, pair, scope), units, scope.tokens, counted)
    low, high = _limited(gate, low, high)
    stays = _stays(gate, low, high, scope)
    passes, by_unit = _passes(gate, pair, scope, units, counted, stays)
    return Verdict(gate, low, high, counted, units, stays, scope, passes, by_unit)


def bounds(gate: Gate) -> tuple[float | None, float | None]:
    """The bounds in the space of the statistic: logarithms for ratios, so that a bound met exactly is inside."""
    return (log_bound(gate.lower), log_bound(gate.upper)) if gate.metric == "ratio" else (gate.lower, gate.upper)


def token_values(gate: Gate, pair: str, scope: Scope) -> Tensor:
    """The metric of each token; neutral outside `scope.tokens`. Log-ratios are masked before anything that can overflow."""
    batch, kind = scope.batch, (gate.metric, gate.direction)
    if kind in FROM_PROBABILITIES:
        target, base = pair.split("/")
        value = FROM_PROBABILITIES[kind](batch.probability(target), batch.probability(base))
        return value if scope.full_rows else value * scope.tokens
    log_r = batch.limited(pair, gate.limit)
    value = FROM_LOG_RATIO[kind](log_r if scope.full_rows else log_r * scope.tokens)
    return value * scope.tokens if gate.metric == "mult_prob_error" else value


def _units(gate: Gate, batch: Batch) -> Layout | None:
    if gate.level == "segment":
        return batch.turns
    return batch.layout if gate.level == "sequence" else None


def _row_statistic(gate: Gate, pair: str, scope: Scope, counted: Tensor) -> tuple[Tensor, Tensor]:
    """The statistic of each sequence; sums of log-ratios are shared between gates and weights."""
    sign = SIGN.get((gate.metric, gate.direction))
    if sign is not None and gate.agg in ("mean", "sum") and scope.full_rows:
        total = scope.alive(scope.batch.row_total(pair, gate.limit)) * sign
        return _finished(gate, total, counted, scope.tokens.dtype)
    low, high = _gathered(gate, token_values(gate, pair, scope), scope.batch.layout, scope.tokens, counted)
    if scope.rows is None:
        return low, high
    alive = torch.nan_to_num(scope.alive(high))  # a rejected sequence may have overflowed
    return (alive, alive) if low is high else (torch.nan_to_num(scope.alive(low)), alive)


def _gathered(gate: Gate, value: Tensor, units: Layout | None, scope: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """One value per unit, as its least and greatest for agg `every`."""
    if units is None:
        return value, value
    if gate.agg in ("mean", "sum"):
        return _finished(gate, units.sums(value), counted, value.dtype)
    has = counted.clamp(max=1.0)
    if gate.agg == "every" and _neutral_is_inside(gate):  # then masked tokens, which hold just that, can stay in
        return _filled(units.dip(value), has), _filled(units.peak(value), has)
    outside = (scope - 1.0).mul_(torch.finfo(value.dtype).max)  # 0 in scope, the lowest number elsewhere
    high = _filled(units.peak(value + outside), has) if gate.agg in ("max", "every") else None
    low = _filled(units.peak(outside.sub_(value)).neg_(), has) if gate.agg in ("min", "every") else None
    if low is None:
        assert high is not None
        return high, high
    return low, low if high is None else high


def _finished(gate: Gate, total: Tensor, counted: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """A sum in float64, or the mean it gives, as one rounding away from a bound of the working type."""
    gathered = rounded(total / counted.clamp(min=1.0) if gate.agg == "mean" else total, kind)
    return gathered, gathered


def _limited(gate: Gate, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """What was gathered, however it was, within a limit that bites there."""
    if gate.limit is None or gate.limit.at != "gathered":
        return low, high
    bound = gate.limit.bound
    held = high.clamp(-bound, bound)
    return held if low is high else low.clamp(-bound, bound), held


def _filled(peak: Tensor, has: Tensor) -> Tensor:
    """0 for a unit without tokens."""
    return torch.where(has > 0, peak, 0.0)


def _neutral_is_inside(gate: Gate) -> bool:
    lower, upper = bounds(gate)
    neutral = 0.0 if gate.metric == "ratio" else METRICS[gate.metric].neutral
    return neutral == 0.0 and (lower is None or lower <= 0.0) and (upper is None or upper >= 0.0)


def _stays(gate: Gate, low: Tensor, high: Tensor, scope: Scope) -> Tensor:
    if gate.agg == "budget":
        return within_budget(high, scope.tokens, gate.upper or 0.0, scope.batch.layout.ranks, strict=gate.strict)
    lower, upper = bounds(gate)
    if low is high:
        return is_inside(high, lower, upper)
    return is_inside(low, lower, None).mul_(is_inside(high, None, upper))


ACTS = {"negative_advantage": below, "nonpositive_advantage": at_most, "positive_advantage": above}


def _passes(
    gate: Gate, pair: str, scope: Scope, units: Layout | None, counted: Tensor, stays: Tensor
) -> tuple[Tensor, bool]:
    """1 where a unit or token gets by (it stays, or the gate does not act on it), and whether that is said per unit."""
    if gate.when == "always":
        return stays, units is not None
    advantages, log_r = scope.batch.advantages, scope.batch.log_r[pair]
    assert advantages is not None
    if gate.when == "moving_away":
        acts = above(advantages * log_r, 0.0)
        return (1.0 - acts).maximum(stays if units is None else units.spread(stays)), False
    if units is not None and gate.advantage_of == "unit":
        total = units.sums(advantages if scope.full_rows else advantages * scope.tokens)
        mean = rounded(total / counted.clamp(min=1.0), stays.dtype)
        return (1.0 - ACTS[gate.when](mean, 0.0)).maximum(stays), True
    acts = ACTS[gate.when](advantages, 0.0)
    return (1.0 - acts).maximum(stays if units is None else units.spread(stays)), False
