"""The metrics of a gate: what it measured, what it turned away and on which side, and the bound it found."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trimtab.core.bounds import is_fixed
from trimtab.core.decisions import Decisions
from trimtab.core.gate import GateResult
from trimtab.core.layout import Layout
from trimtab.core.measures import Measure, bound_figure, quantile_points
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


def found_gate_bound(index: int, name: str) -> Measure:
    """The upper bound of a gate that was found in the batch."""

    def section(made: Decisions) -> dict[str, Tensor]:
        found = made.results[index]
        return {f"{name}upper": bound_figure(found.bounds.upper, of_ratio=found.gate.metric == "ratio")}

    return section


def _statistic(found: GateResult) -> Tensor:
    """One value per unit in the space users think in; for `every`, that of the token outside, else of the farthest from neutral."""
    value = found.high
    if found.low is not found.high:
        beyond, short = _sides(found)
        upper = torch.where(beyond == short, found.high >= -found.low, beyond > short)
        value = torch.where(upper, found.high, found.low)
    return value.clamp(-LIMIT, LIMIT).exp() if found.gate.metric == "ratio" else value.clamp(-MOST, MOST)


def gate_statistic(index: int, name: str) -> Measure:
    """What a gate measured."""

    def section(made: Decisions) -> dict[str, Tensor]:
        found = made.results[index]
        share = 1.0 if found.units is None else made.ranks.row_share
        present = has_tokens(found.counted)
        held = _statistic(found) * present
        return describe(held, present, small_sum_of(present), made.ranks, share).as_metrics(name)

    return section


def gate_quantiles(index: int, name: str) -> Measure:
    """What a gate measured, where one unit cannot own the figure."""

    def section(made: Decisions) -> dict[str, Tensor]:
        found = made.results[index]
        return with_prefix(name, quantile_points(_statistic(found), has_tokens(found.counted), made.ranks))

    return section


def gate_rejections(index: int, name: str) -> Measure:
    """What a gate turned away, on which side."""

    def section(made: Decisions) -> dict[str, Tensor]:
        found = made.results[index]
        here, lost, of_unit = _turned_away(found, made.batch.layout)
        rows = {"tokens": here, "lost": lost, "rows": has_tokens(here), "lost_rows": has_tokens(here) * (lost == here)}
        share = 1.0 if found.units is None else made.ranks.row_share
        above, below = (sum_of(of_unit * side) * share for side in _sides(found))
        local = {part: sum_of_rows(made.ranks, each) for part, each in rows.items()} | {"above": above, "below": below}
        return with_prefix(name, means(OF_GATE, total_sums(made.ranks, local)))

    return section


def bounds_that_keep(made: Decisions, share: float) -> list[str]:
    """For each rejecting gate whose own bounds keep less than that share of its units: the bounds, in words, that would keep it."""
    return [
        f"Gate {index} ({found.gate.metric} of each {found.gate.level}) would keep {share:.0%} of these with {bounds}"
        for index, found in enumerate(made.results)
        if found.gate.action == "reject" and is_fixed(found.gate) and (bounds := _bounds_that_keep(found, share))
    ]


def _bounds_that_keep(found: GateResult, share: float) -> str:
    """Bounds in the gate's own keys, rounded outwards; nothing where its bounds keep as much already."""
    present = has_tokens(found.counted) > 0
    if not bool(present.any()) or float(found.inside[present].mean()) >= share:
        return ""
    outside = (1.0 - share) / (2 if found.gate.lower is not None and found.gate.upper is not None else 1)
    low, high = (
        (each[present].exp() if found.gate.metric == "ratio" else each[present]).double()
        for each in (found.low, found.high)
    )
    spare = int(outside * len(low) + 1e-9)  # units that may fall on a side
    ends = {"lower": low.sort().values[spare].item(), "upper": high.sort(descending=True).values[spare].item()}
    given = {side: bound for side in ends if (bound := getattr(found.gate, side)) is not None}
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


def _turned_away(found: GateResult, layout: Layout) -> tuple[Tensor, Tensor, Tensor]:
    """How many tokens a gate looked at in each sequence, how many it turned away there, and how many in each unit."""
    if found.units is layout and found.gate.when == "always":
        lost = found.counted * (1.0 - found.inside)
        return found.counted, lost, lost
    fails = found.scope * (1.0 - found.passes)
    return layout.count(found.scope), layout.count(fails), fails if found.units is None else found.units.count(fails)


def _sides(found: GateResult) -> tuple[Tensor, Tensor]:
    """Which units lie above the upper bound, and which below the lower one."""
    if found.gate.agg == "budget":
        return 1.0 - found.inside, torch.zeros_like(found.inside)
    lower, upper = found.bounds.lower, found.bounds.upper
    return 1.0 - is_inside(found.high, None, upper), 1.0 - is_inside(found.low, lower, None)
