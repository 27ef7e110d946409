"""The metrics of a gate: what it measured, what it turned away and on which side, and the bound it found."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trimtab.core.bounds import is_fixed
from trimtab.core.decisions import Decisions
from trimtab.core.gate import GateResult
from trimtab.core.layout import Layout
from trimtab.core.measures import bound_figure, quantile_points
from trimtab.core.ratio import is_inside, small_sum_of, sum_of
from trimtab.core.sums import (
    LIMIT,
    MOST,
    OF_GATE,
    describe,
    has_tokens,
    means,
    sum_of_rows,
    total_sums,
    with_prefix,
)


def found_gate_bound(index: int, name: str, decisions: Decisions) -> dict[str, Tensor]:
    """The upper bound of a gate that was found in the batch."""
    result = decisions.results[index]
    return {f"{name}upper": bound_figure(result.bounds.upper, of_ratio=result.gate.metric == "ratio")}


def _statistic(result: GateResult) -> Tensor:
    """One value per unit in the space users think in; for `every`, that of the token outside, else of the farthest from neutral."""
    value = result.high
    if result.low is not result.high:
        beyond, short = _sides(result)
        upper = torch.where(beyond == short, result.high >= -result.low, beyond > short)
        value = torch.where(upper, result.high, result.low)
    return value.clamp(-LIMIT, LIMIT).exp() if result.gate.metric == "ratio" else value.clamp(-MOST, MOST)


def gate_statistic(index: int, name: str, decisions: Decisions) -> dict[str, Tensor]:
    """What a gate measured."""
    result = decisions.results[index]
    share = 1.0 if result.units is None else decisions.ranks.row_share
    present = has_tokens(result.counted)
    values = _statistic(result) * present
    return describe(values, present, small_sum_of(present), decisions.ranks, share).as_metrics(name)


def gate_quantiles(index: int, name: str, decisions: Decisions) -> dict[str, Tensor]:
    """What a gate measured, where one unit cannot dominate."""
    result = decisions.results[index]
    return with_prefix(name, quantile_points(_statistic(result), has_tokens(result.counted), decisions.ranks))


def gate_rejections(index: int, name: str, decisions: Decisions) -> dict[str, Tensor]:
    """What a gate turned away, on which side."""
    result, ranks = decisions.results[index], decisions.ranks
    seen, lost, of_unit = _turned_away(result, decisions.batch.layout)
    rows = {"tokens": seen, "lost": lost, "rows": has_tokens(seen), "lost_rows": has_tokens(seen) * (lost == seen)}
    share = 1.0 if result.units is None else ranks.row_share
    above, below = (sum_of(of_unit * side) * share for side in _sides(result))
    local = {part: sum_of_rows(ranks, each) for part, each in rows.items()} | {"above": above, "below": below}
    return with_prefix(name, means(OF_GATE, total_sums(ranks, local)))


def bounds_that_keep(decisions: Decisions, share: float) -> list[str]:
    """For each rejecting gate whose own bounds keep less than that share of its units: the bounds, in words, that would keep it."""
    return [
        f"Gate {index} ({result.gate.metric} of each {result.gate.level}) would keep {share:.0%} of these with {bounds}"
        for index, result in enumerate(decisions.results)
        if result.gate.action == "reject" and is_fixed(result.gate) and (bounds := _bounds_that_keep(result, share))
    ]


def _bounds_that_keep(result: GateResult, share: float) -> str:
    """Bounds in the gate's own keys, rounded outwards; nothing where its bounds keep as much already."""
    present = has_tokens(result.counted) > 0
    if not bool(present.any()) or float(result.inside[present].mean()) >= share:
        return ""
    outside = (1.0 - share) / (2 if result.gate.lower is not None and result.gate.upper is not None else 1)
    low, high = (
        (each[present].exp() if result.gate.metric == "ratio" else each[present]).double()
        for each in (result.low, result.high)
    )
    spare = int(outside * len(low) + 1e-9)  # units that may fall on a side
    ends = {"lower": low.sort().values[spare].item(), "upper": high.sort(descending=True).values[spare].item()}
    given = {side: bound for side in ends if (bound := getattr(result.gate, side)) is not None}
    wider = {
        side: each for side, each in given.items() if (ends[side] > each if side == "upper" else ends[side] < each)
    }
    return " and ".join(f"{side} {_outwards(ends[side], side)} (it is {each:g})" for side, each in wider.items())


def _outwards(value: float, side: str) -> str:
    """A bound with four digits that lets the value in."""
    if not math.isfinite(value):
        return "null"  # the side left open
    step = 10.0 ** (math.floor(math.log10(abs(value))) - 3) if value else 0.0
    return f"{value + (step if side == 'upper' else -step):.4g}"


def _turned_away(result: GateResult, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """How many tokens a gate looked at in each sequence, how many it turned away there, and how many in each unit."""
    if result.units is layout and result.gate.when == "always":
        lost = result.counted * (1.0 - result.inside)
        return result.counted, lost, lost
    fails = result.scope * (1.0 - result.passes)
    return layout.count(result.scope), layout.count(fails), fails if result.units is None else result.units.count(fails)


def _sides(result: GateResult) -> tuple[Tensor, Tensor]:
    """Which units lie above the upper bound, and which below the lower one."""
    if result.gate.agg == "budget":
        return 1.0 - result.inside, torch.zeros_like(result.inside)
    lower, upper = result.bounds.lower, result.bounds.upper
    return 1.0 - is_inside(result.high, None, upper), 1.0 - is_inside(result.low, lower, None)
