# pyright: basic
"""Rules that the sums and extremes of a row decide, without another look at its tokens: gates on whole rows, and gates on tokens
that all tokens of a row pass. Where a few do not, they are taken out of the row; a statistic of what is left needs the other route.
"""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.exponential import exponential_of
from trimtab.core.fast.machine import ONE, ZERO, f32, f64, inlined
from trimtab.core.fast.places import (
    DONE,
    FIRST_EXPONENTIAL,
    GATE_SUMS,
    PLAIN,
    ROW,
    ROW_GATE,
    TOKEN_SUMS,
    TOKEN_TOPS,
    TOKENS,
)
from trimtab.core.fast.tokens import count_bytes
from trimtab.core.fast.totals import sum_of_magnitudes
from trimtab.core.fast.verdict import MOST, beside_bound, row_weight
from trimtab.core.fast.weights import bare_weights, count_beyond, fill_marked, take_out, weigh_tokens


@inlined
@no_type_check
def decide_row(row, tokens, k3, gates, bounds, weighs, limits, bare, sums, tops):
    """A row through every gate and the weight; what became of it.

    `tokens`: log r, trained, and where kept and weight go. `bare`: without the sums of weights.
    """
    x, trained, kept, weight = tokens
    is_open = acts = True
    row[3] = row[0]
    for g in range(len(gates)):
        own = row[ROW + g * ROW_GATE :]
        number = row[0] if is_open or gates[g, 4] == 0 else 0.0
        if gates[g, 4] == 1 and is_open and row[3] < row[0]:
            return TOKENS
        if gates[g, 1] == 1:
            inside, near = _judge_row(row, own, x, k3, gates[g], bounds[g], number)
            if near:
                return PLAIN
            is_open = is_open and (inside or gates[g, 3] != 0)
            acts = acts and (inside or gates[g, 3] != 1)
        else:
            at, top = sums[TOKEN_SUMS + g * GATE_SUMS :], tops[TOKEN_TOPS + 2 * g :]
            if not _judge_tokens(row, own, x, trained, kept, gates[g], bounds[g], number, is_open, at, top):
                return TOKENS
    return _weigh_row(row, is_open, acts, x, trained, kept, weight, weighs, limits, bare, sums, tops)


@inlined
@no_type_check
def _judge_row(row, own, x, k3, gate, bounds, number):
    """A gate on a row: whether it is inside, and whether a rounding could have decided."""
    lowest, highest = _statistic(gate, row, k3, number)
    if gate[5] == 2:
        lowest, highest = min(max(lowest, -bounds[2]), bounds[2]), min(max(highest, -bounds[2]), bounds[2])
    near = False
    if gate[0] >= FIRST_EXPONENTIAL:
        far, parts = f32(max(-row[5], row[6])), f32(number) if gate[2] == 1 else ONE
        if beside_bound(bounds, lowest, highest, far * parts):  # a look at the tokens only where it matters
            typical = f32(sum_of_magnitudes(x) / max(number, 1.0)) * parts
            near = beside_bound(bounds, lowest, highest, typical)
    inside = lowest >= bounds[0] and highest <= bounds[1]
    own[0], own[1], own[2] = number, lowest, highest
    own[3], own[4] = (1.0, 0.0) if inside else (0.0, number)
    return inside, near


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
    low, high = _ends(gate, row)
    if gate[2] == 2:
        return high, high
    return (low, low) if gate[2] == 3 else (low, high)


@inlined
@no_type_check
def _ends(gate, row):
    """The least and the greatest value of the tokens of a row."""
    return (f32(-row[6]), f32(-row[5])) if gate[0] == 1 else (f32(row[5]), f32(row[6]))


@inlined
@no_type_check
def _judge_tokens(row, own, x, trained, kept, gate, bounds, number, is_open, sums, tops):
    """A gate on tokens, which leave the row where they fail. False: they are zeroed instead, which the other route does."""
    low, high = _ends(gate, row)
    own[0], own[1], own[2], own[3], own[4] = number, low, high, 1.0, 0.0
    if number == 0:
        return True
    sums[4] += number
    tops[0] = max(tops[0], f64(exponential_of(high) if gate[0] == 0 else high))
    tops[1] = max(tops[1], -f64(exponential_of(low) if gate[0] == 0 else low))
    if low >= bounds[0] and high <= bounds[1]:
        return True
    lower, upper = (-bounds[1], -bounds[0]) if gate[0] == 1 else (bounds[0], bounds[1])
    above, below = count_beyond(x, trained, lower, upper)
    sums[2] += below if gate[0] == 1 else above
    sums[3] += above if gate[0] == 1 else below
    own[4] = above + below
    if gate[3] == 0 and is_open:
        take_out(x, lower, upper, kept)
        row[3] = count_bytes(kept)
    return gate[3] != 1


@inlined
@no_type_check
def _weigh_row(row, is_open, acts, x, trained, kept, weight, weighs, limits, bare, sums, tops):
    """Write what is kept of a row and the weight of its tokens."""
    level = weighs[0]
    if level > 1 and weighs[2] == 1 and row[3] < row[0]:
        return TOKENS
    row[3] = row[3] if is_open else 0.0
    if not is_open:
        kept[:] = 0
    sums[11] += row[3]
    value = ONE
    number = row[3] if weighs[2] == 1 else row[0]
    if level == 1 and number > 0:
        sums[14] += number
        if row[6] > limits[3] or row[5] < limits[2]:
            above, below = count_beyond(x, kept if weighs[2] == 1 else trained, limits[2], limits[3])
            sums[15] += above
            sums[16] += below
    elif level > 1 and number > 0:
        log, value = row_weight(f32(row[1] / number if level == 2 else row[1]), weighs, limits)
        row[7] = log
        sums[14] += number
        sums[15] += number if log > limits[3] else 0.0
        sums[16] += number if log < limits[2] else 0.0
    if level == 1 and is_open and acts and bare:
        bare_weights(x, kept, weighs[1] == 1, limits, weight)
        return DONE
    if level == 1 and is_open and acts:
        weigh_tokens(weight, x, kept, weighs[1] == 1, limits, sums, tops)
        return DONE
    value = value if is_open and acts else ZERO
    row[4] = value
    if value > ZERO and row[3] < len(weight):
        fill_marked(kept, value, weight)
    else:
        weight[:] = value
    if row[3] > 0:
        sums[12] += row[3] * f64(value)
        sums[13] += row[3] * f64(value) * f64(value)
        tops[4] = max(tops[4], f64(value))
        tops[5] = max(tops[5], -f64(value))
    return DONE if value <= MOST else PLAIN
