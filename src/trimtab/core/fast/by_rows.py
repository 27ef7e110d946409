# pyright: basic
"""Rules whose gates look at whole rows only: the sums and extremes of a row decide, without another look at its tokens."""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.machine import ONE, ZERO, f32, f64, inlined
from trimtab.core.fast.places import FIRST_EXPONENTIAL, ROW, ROW_GATE
from trimtab.core.fast.totals import sum_of_magnitudes
from trimtab.core.fast.verdict import MOST, beside_bound, row_weight
from trimtab.core.fast.weights import count_beyond, fill_marked, weigh_tokens


@inlined
@no_type_check
def decide_row(row, tokens, k3, gates, bounds, weighs, limits, sums, tops):
    """A row through every gate and the weight. `tokens`: log r, trained, and where kept and weight go. False: the plain form's."""
    x, trained, kept, weight = tokens
    is_open, acts, near = _judge_row(row, x, k3, gates, bounds)
    return not near and _weigh_row(row, is_open, acts, x, trained, kept, weight, weighs, limits, sums, tops)


@inlined
@no_type_check
def _judge_row(row, x, k3, gates, bounds):
    """The gates on one row in order. Whether it is kept, whether it acts, and whether a rounding could have decided."""
    is_open = acts = True
    far = f32(max(-row[5], row[6]))
    for g in range(len(gates)):
        own = row[ROW + g * ROW_GATE :]
        number = row[0] if is_open or gates[g, 4] == 0 else 0.0
        lowest, highest = _statistic(gates[g], row, k3, number)
        if gates[g, 5] == 2:
            lowest = min(max(lowest, -bounds[g, 2]), bounds[g, 2])
            highest = min(max(highest, -bounds[g, 2]), bounds[g, 2])
        if gates[g, 0] >= FIRST_EXPONENTIAL:
            parts = f32(number) if gates[g, 2] == 1 else ONE
            if beside_bound(bounds[g], lowest, highest, far * parts):  # a look at the tokens only where it matters
                typical = f32(sum_of_magnitudes(x) / max(number, 1.0)) * parts
                if beside_bound(bounds[g], lowest, highest, typical):
                    return is_open, acts, True
        inside = lowest >= bounds[g, 0] and highest <= bounds[g, 1]
        own[0], own[1], own[2] = number, lowest, highest
        own[3], own[4] = (1.0, 0.0) if inside else (0.0, number)
        is_open = is_open and (inside or gates[g, 3] != 0)
        acts = acts and (inside or gates[g, 3] != 1)
    return is_open, acts, False


@inlined
@no_type_check
def _statistic(gate, row, k3, number):
    """The least and the greatest of what a gate gathers from a row: log r or minus it, or k3."""
    if number == 0:
        return ZERO, ZERO
    if gate[2] < 2:
        total = k3 if gate[0] == FIRST_EXPONENTIAL else -row[1] if gate[0] == 1 else row[1]
        value = f32(total / number if gate[2] == 0 else total)
        return value, value
    low, high = f32(row[5]), f32(row[6])
    if gate[0] == 1:
        low, high = -high, -low
    if gate[2] == 2:
        return high, high
    return (low, low) if gate[2] == 3 else (low, high)


@inlined
@no_type_check
def _weigh_row(row, is_open, acts, x, trained, kept, weight, weighs, limits, sums, tops):
    """Write what is kept of a row and the weight of its tokens. False: a weight too large for any form but the plain one."""
    number, level = row[0], weighs[0]
    counts = number > 0 and (weighs[2] == 0 or is_open)
    value = ONE
    if level == 1 and counts:
        sums[14] += number
        if row[6] > limits[3] or row[5] < limits[2]:
            above, below = count_beyond(x, trained, limits[2], limits[3])
            sums[15] += above
            sums[16] += below
    elif level > 1:
        total = row[1] if counts else 0.0
        log = f32(total / max(number if counts else 0.0, 1.0) if level == 2 else total)
        log, value = row_weight(log, weighs, limits)
        if counts:
            sums[14] += number
            sums[15] += number if log > limits[3] else 0.0
            sums[16] += number if log < limits[2] else 0.0
    if not is_open:
        kept[:] = 0
    row[3] = number if is_open else 0.0
    sums[11] += row[3]
    if level == 1 and is_open and acts:
        weigh_tokens(weight, x, trained, weighs[1] == 1, limits, sums, tops)
        return True
    value = value if is_open and acts else ZERO
    row[4] = value
    if value > ZERO:
        fill_marked(trained, value, weight)
    else:
        weight[:] = ZERO
    if row[3] > 0:
        excess = f64(value) - 1.0
        sums[12] += row[3] * excess
        sums[13] += row[3] * excess * excess
        tops[4] = max(tops[4], f64(value))
        tops[5] = max(tops[5], -f64(value))
    return value <= MOST
