# pyright: basic
"""What rows add to the sums of a batch, and what gates measured."""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np

from trimtab.core.fast.machine import SUMMED, compiled, f32, f64, i32, where_marked
from trimtab.core.fast.places import GATE_SUMS, ROW, ROW_GATE, TOKEN_SUMS, TOKEN_TOPS

LIMIT, MOST = 20.0, 1e38
LOG_MOST = math.log(MOST)


@compiled()
@no_type_check
def fold_rows(rows, gates, bounds, sums, tops):
    """Add what stands in each row: sequences, perplexities, and what each gate measured and turned away."""
    for row in range(len(rows)):
        number = rows[row, 0]
        if number == 0:
            continue
        base, apart = rows[row, 2] / number, rows[row, 1] / number
        sums[17] += 1.0
        sums[18] += 1.0 if rows[row, 3] > 0 else 0.0
        sums[19] += math.exp(min(-base, LOG_MOST))
        sums[20] += math.exp(min(-base - apart, LOG_MOST))
        sums[21] += math.exp(min(-apart, LOG_MOST))
        sums[22] -= apart
        sums[23] += abs(apart)
        sums[24] += math.expm1(2 * min(max(rows[row, 1], -LIMIT), LIMIT))
        tops[8] = max(tops[8], -f32(apart))
        tops[9] = max(tops[9], f32(apart))
    for g in range(len(gates)):
        at, top = sums[TOKEN_SUMS + g * GATE_SUMS :], tops[TOKEN_TOPS + 2 * g :]
        for row in range(len(rows)):
            own = rows[row, ROW + g * ROW_GATE :]
            if own[0] == 0:
                continue
            at[0] += own[0]
            at[1] += own[4]
            at[7] += 1.0
            at[8] += 1.0 if own[4] == own[0] else 0.0
            if gates[g, 1] == 1:
                value = np.float64(shown_value(own[1], own[2], bounds[g, 0], bounds[g, 1], gates[g, 0] == 0))
                at[2] += own[4] if own[2] > bounds[g, 1] else 0.0
                at[3] += own[4] if own[1] < bounds[g, 0] else 0.0
                at[4] += 1.0
                at[5] += value
                at[6] += value * value
                top[0] = max(top[0], value)
                top[1] = max(top[1], -value)


@compiled()
@no_type_check
def shown_value(low, high, lower, upper, is_log):
    """What a gate on a row measured, as it is reported: the side outside, else the one farther from neutral."""
    beyond, short = high > upper, low < lower
    value = high if (high >= -low if beyond == short else beyond) else low
    return f32(math.exp(min(max(value, -LIMIT), LIMIT))) if is_log else f32(min(max(value, -MOST), MOST))


@compiled()
@no_type_check
def observe_gates(log_r, trained, offsets, rows, gates, sums):
    """Add Σ and Σ² of what gates on tokens measured in whole rows, where the moments of all tokens are known."""
    for g in range(len(gates)):
        at = sums[TOKEN_SUMS + g * GATE_SUMS :]
        if gates[g, 1] == 1:
            continue
        if gates[g, 0] == 0 and at[4] == sums[1]:
            at[5] += sums[1] + sums[3]
            at[6] += sums[1] + 2.0 * sums[3] + sums[4]
            continue
        for row in range(len(rows)):
            if rows[row, ROW + g * ROW_GATE] == 0:
                continue
            if gates[g, 0] == 0:
                excess = rows[row, 10]
                at[5] += rows[row, 0] + excess
                at[6] += rows[row, 0] + 2.0 * excess + rows[row, 8]
                continue
            low, high = offsets[row], offsets[row + 1]
            first, second = _token_sums(log_r[low:high], trained[low:high])
            at[5] += -first if gates[g, 0] == 1 else first
            at[6] += second


@compiled(fastmath=SUMMED)
@no_type_check
def _token_sums(x, trained):
    """Σ and Σ² of log r over the trained tokens."""
    first = second = 0.0
    for i in range(len(x)):
        value = where_marked(x[i], -i32(trained[i]))
        first += f64(value)
        second += f64(value) * f64(value)
    return first, second


@compiled()
@no_type_check
def measured_again(g, log_r, trained, offsets, rows, gates, bounds, value, scope):
    """What a gate on tokens measured and which of them it looked at: every trained one, or those that earlier gates kept."""
    for row in range(len(rows)):
        open_ = True
        for before in range(g):
            own = rows[row, ROW + before * ROW_GATE :]
            open_ &= not (gates[g, 4] == 1 and gates[before, 1] == 1 and gates[before, 3] == 0 and own[3] == 0.0)
        for i in range(offsets[row], offsets[row + 1]):
            counts = open_ and trained[i]
            for before in range(g):
                if counts and gates[g, 4] == 1 and gates[before, 1] == 0 and gates[before, 3] == 0:
                    found = token_value(gates[before], bounds[before], log_r[i])
                    counts = bounds[before, 0] <= found <= bounds[before, 1]
            scope[i] = counts
            value[i] = token_value(gates[g], bounds[g], log_r[i])


@compiled()
@no_type_check
def token_value(gate, bounds, x):
    """A divergence of one token that needs no exponential, by its code."""
    x = min(max(x, -bounds[2]), bounds[2]) if gate[5] == 1 else x
    metric = gate[0]
    if metric == 1:
        return -x
    if metric == 3:
        return x * x * f32(0.5)
    if metric == 4:
        return x * x
    return abs(x) if metric == 5 else x
