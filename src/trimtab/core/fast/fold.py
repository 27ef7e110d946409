# pyright: basic
"""What rows add to the sums of a batch, and exact order statistics of its tokens by two counts of bins."""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np

from trimtab.core.fast.machine import compiled, f32, i32
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
def shown_values(rows, g, is_log, lower, upper, out):
    """The same for all rows with tokens; how many there are."""
    number = 0
    for row in range(len(rows)):
        own = rows[row, ROW + g * ROW_GATE :]
        if own[0] > 0:
            out[number] = shown_value(own[1], own[2], lower, upper, is_log)
            number += 1
    return number


@compiled()
@no_type_check
def order_statistics(bits, marks, ranks, magnitude, coarse, fine, found):
    """The values of the given ranks (from 1, rising) among the marked ones, as bits in order; `magnitude`: of |value|.

    Bits are those of float32 numbers. One count by their upper halves finds the bin of each rank, one by the lower halves of those
    bins the value.
    """
    coarse[:] = 0
    for i in range(len(bits)):
        if marks[i]:
            coarse[_upper(bits[i], magnitude)] += 1
    before, bin_, done = 0, 0, 0
    slots = np.full(65536, -1, np.int8)
    bins, rest = np.zeros(len(ranks), np.int64), np.zeros(len(ranks), np.int64)
    while done < len(ranks) and bin_ < 65536:
        if before + coarse[bin_] >= ranks[done]:
            slots[bin_] = done if slots[bin_] < 0 else slots[bin_]
            bins[done], rest[done] = bin_, ranks[done] - before
            done += 1
        else:
            before += coarse[bin_]
            bin_ += 1
    fine[:] = 0
    for i in range(len(bits)):
        if marks[i]:
            slot = slots[_upper(bits[i], magnitude)]
            if slot >= 0:
                fine[slot, _ordered(bits[i], magnitude) & 0xFFFF] += 1
    for k in range(len(ranks)):
        place, left = 0, rest[k]
        while left > fine[slots[bins[k]], place]:
            left -= fine[slots[bins[k]], place]
            place += 1
        found[k] = i32(((bins[k] - 32768) << 16) + place)


@compiled()
@no_type_check
def _ordered(bits, magnitude):
    """The bits of a float32 as an integer in the same order; −0 and 0 are one value."""
    if magnitude:
        return bits & i32(0x7FFFFFFF)
    return i32(0) if bits == i32(-2147483648) else i32(bits ^ i32(i32(bits >> i32(31)) & i32(0x7FFFFFFF)))


@compiled()
@no_type_check
def _upper(bits, magnitude):
    """The bin of a number by the upper half of its bits."""
    return (_ordered(bits, magnitude) >> 16) + 32768


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
