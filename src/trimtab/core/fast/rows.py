# pyright: basic
"""The pass over the tokens: chunks of whole rows go through every gate, the weight and the sums while they lie in the cache.

    log-probs ─► log r, here ─► exponentials ─► gates row by row ─► kept, weight ─► sums of the batch, sums of each row

Padded rows and packed sequences are one thing here: rows that lie between offsets.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from trimtab.core.fast.elements import (
    ONE,
    ZERO,
    all_times,
    as_bytes,
    bound_between,
    compiled,
    count_marked_above,
    count_marked_below,
    count_positive,
    divergence,
    drift_sums,
    exponential,
    exponentials,
    extremes,
    f32,
    greatest_magnitude,
    held,
    inlined,
    k3_reverse,
    keep_where,
    last_counted,
    mark_finite,
    mark_inside,
    narrow,
    probability_distance,
    product_sum,
    row_totals,
    split_ratio,
    square_sum,
    sum_of_bytes,
    sum_of_chunk,
    sum_of_magnitudes,
    times,
    weight_sums,
    zero_beyond,
)

CHUNK = 2048
"""Tokens of a chunk of short rows; a longer row is a chunk of its own."""
SCRATCH = 12
"""Numbers of scratch for each token of a chunk."""
HERE, KEPT, ACTS, EXCESS, K3, RATIO, LOG, ONE_, TWO, THREE, VALUE, BASE = range(SCRATCH)
"""What stands where in scratch: indicators, exponentials, the log-ratio as a gate reads it, and room to work in."""
ROW, ROW_GATE = 5, 5
"""Numbers kept of each row, and of each gate in it; `totals.py` names them."""
TOKEN_SUMS, GATE_SUMS, TOKEN_TOPS = 25, 9, 10
FAR = f32(20.0)
POSITIVE, HUGE = f32(0.01), f32(80.0)
INFINITY, MOST, LARGEST = f32(np.inf), f32(1e38), np.finfo(np.float32).max
FIRST_EXPONENTIAL = 6


@compiled()
@no_type_check
def longest_chunk(offsets):
    """How many tokens scratch has to hold."""
    longest = 0
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return max(longest, CHUNK)


@inlined
@no_type_check
def of_scratch(scratch, name, n):
    """One array of scratch: contiguous, and apart from all others."""
    start = name * (len(scratch) // SCRATCH)
    return scratch[start : start + n]


@compiled()
@no_type_check
def decide_rows(
    a, b, mask, offsets, gates, bounds, weight, limits, scratch, log_r, weights, trained, kept, rows, sums, tops
):
    """Run a program over all rows. False: numbers too far out, or too close to a bound to say, for any form but the plain one."""
    first, number = 0, len(offsets) - 1
    while first < number:
        start, last = offsets[first], first + 1
        while last < number and offsets[last + 1] - start <= CHUNK:
            last += 1
        stop = offsets[last]
        whole, stop = stop, start + last_counted(mask[start:stop])
        log_r[stop:whole], weights[stop:whole], trained[stop:whole], kept[stop:whole] = ZERO, ZERO, False, False
        if stop > start:
            n = stop - start
            x, here = log_r[start:stop], of_scratch(scratch, HERE, n)
            split_ratio(a[start:stop], b[start:stop], mask[start:stop], x)
            mark_finite(a[start:stop], b[start:stop], mask[start:stop], here)
            as_bytes(here, trained[start:stop])
            sums[0] += sum_of_bytes(mask[start:stop])
            part, own = np.minimum(offsets[first : last + 1], stop), rows[first:last]
            if not _measure(a[start:stop], b[start:stop], x, scratch, sums, tops):
                return False
            _sum_rows(x, part, scratch, own, sums)
            if not _judge(x, part, gates, bounds, scratch, own, sums, tops):
                return False
            if not _weigh(x, part, weight, limits, scratch, weights[start:stop], own, sums, tops):
                return False
            as_bytes(of_scratch(scratch, KEPT, n), kept[start:stop])
        first = last
    return True


@inlined
@no_type_check
def _measure(a, b, x, scratch, sums, tops):
    """The sums of a chunk that do not depend on what is decided; e^x − 1, k3, e^x and log behavior are left in scratch."""
    n = len(x)
    here, one, two = of_scratch(scratch, HERE, n), of_scratch(scratch, ONE_, n), of_scratch(scratch, TWO, n)
    excess, k3, ratio = of_scratch(scratch, EXCESS, n), of_scratch(scratch, K3, n), of_scratch(scratch, RATIO, n)
    base = of_scratch(scratch, BASE, n)
    keep_where(b, here, base)
    low, high = extremes(x, here)
    _, certain = extremes(base, here)
    far = max(-low, high)
    if far > FAR or certain > HUGE:
        return False
    if max(certain, certain + far) > POSITIVE:  # else no log-prob can lie above 0
        sums[10] += count_positive(a, base, here, POSITIVE)
    exponentials(x, excess, k3, ratio)
    k3_reverse(x, excess, k3, ratio, one)
    drift_sums(x, excess, k3, one, sums)
    exponential(base, two)
    probability_distance(two, excess, one)
    sums[9] += sum_of_chunk(one)
    tops[0] = max(tops[0], far)
    tops[1] = max(tops[1], high)
    tops[2] = max(tops[2], -low)
    tops[3] = max(tops[3], greatest_magnitude(one))
    return True


@inlined
@no_type_check
def _sum_rows(x, part, scratch, rows, sums):
    """The tokens of each row, and its sums of log r and log behavior."""
    here, base = of_scratch(scratch, HERE, len(x)), of_scratch(scratch, BASE, len(x))
    for row in range(len(rows)):
        low, high = part[row] - part[0], part[row + 1] - part[0]
        rows[row, 0], rows[row, 1], rows[row, 2] = row_totals(here[low:high], x[low:high], base[low:high])
        sums[1] += rows[row, 0]
        sums[2] += rows[row, 1]


@inlined
@no_type_check
def _judge(x, part, gates, bounds, scratch, rows, sums, tops):
    """The gates in order; 1 on the tokens that are kept, and on those that are not zeroed, is left in scratch."""
    n = len(x)
    here, kept, acts = of_scratch(scratch, HERE, n), of_scratch(scratch, KEPT, n), of_scratch(scratch, ACTS, n)
    one, two, three = of_scratch(scratch, ONE_, n), of_scratch(scratch, TWO, n), of_scratch(scratch, THREE, n)
    log, value, k3 = of_scratch(scratch, LOG, n), of_scratch(scratch, VALUE, n), of_scratch(scratch, K3, n)
    for i in range(n):
        kept[i] = here[i]
    for i in range(n):
        acts[i] = ONE
    for g in range(len(gates)):
        own, at, top = rows[:, ROW + g * ROW_GATE :], sums[TOKEN_SUMS + g * GATE_SUMS :], tops[TOKEN_TOPS + 2 * g :]
        scope = kept if gates[g, 4] == 1 else here
        limit = bounds[g, 2] if gates[g, 5] == 1 else INFINITY
        known = gates[g, 4] == 0 and gates[g, 5] != 1  # over all trained tokens, with no limit on each
        if known and gates[g, 0] == FIRST_EXPONENTIAL:
            value = k3
        elif not (known and gates[g, 0] == 0 and gates[g, 1] == 1 and gates[g, 2] < 2):
            value = of_scratch(scratch, VALUE, n)
            held(x, limit, one)
            times(one, scope, log)
            divergence(gates[g, 0], log, scope, one, two, three, value)
        if gates[g, 1] == 0:
            _judge_tokens(gates[g], bounds[g], value, scope, part, one, two, kept, acts, own, at, top)
        elif not _judge_rows(gates[g], bounds[g], value, scope, x, part, kept, acts, rows, own, known):
            return False
    return True


@inlined
@no_type_check
def _judge_tokens(gate, bounds, value, scope, part, inside, spare, kept, acts, own, sums, tops):
    """A gate on tokens: marks, what each row loses, and the sums of what it measured."""
    mark_inside(value, bounds[0], bounds[1], inside)
    for row in range(len(own)):
        low, high = part[row] - part[0], part[row + 1] - part[0]
        own[row, 0] = sum_of_chunk(scope[low:high])
        own[row, 4] = own[row, 0] - product_sum(scope[low:high], inside[low:high])
    sums[2] += count_marked_above(value, scope, bounds[1])
    sums[3] += count_marked_below(value, scope, bounds[0])
    shown = value
    if gate[0] == 0:
        exponential(value, spare)
        shown = spare
    sums[4] += sum_of_chunk(scope)
    sums[5] += product_sum(shown, scope)
    sums[6] += square_sum(shown, scope)
    low, high = extremes(shown, scope)
    tops[0] = max(tops[0], high)
    tops[1] = max(tops[1], -low)
    if gate[3] == 0:
        narrow(inside, kept)
    elif gate[3] == 1:
        narrow(inside, acts)


@inlined
@no_type_check
def _judge_rows(gate, bounds, value, scope, x, part, kept, acts, rows, own, known):
    """A gate on rows: what it measured in each, and its verdict."""
    for row in range(len(rows)):
        low, high = part[row] - part[0], part[row + 1] - part[0]
        number = rows[row, 0] if known else sum_of_chunk(scope[low:high])
        lowest = highest = ZERO
        if gate[2] < 2:
            total = rows[row, 1] if known and gate[0] == 0 else sum_of_chunk(value[low:high])
            lowest = highest = f32(total / max(number, 1.0) if gate[2] == 0 else total)
        elif number > 0:
            lowest, highest = extremes(value[low:high], scope[low:high])
            if gate[2] == 2:
                lowest = highest
            elif gate[2] == 3:
                highest = lowest
        if gate[5] == 2:
            lowest = min(max(lowest, -bounds[2]), bounds[2])
            highest = min(max(highest, -bounds[2]), bounds[2])
        inside = lowest >= bounds[0] and highest <= bounds[1]
        if gate[0] >= FIRST_EXPONENTIAL and _too_close(gate, bounds, lowest, highest, x[low:high], number):
            return False
        own[row, 0], own[row, 1], own[row, 2] = number, lowest, highest
        own[row, 3], own[row, 4] = (1.0, 0.0) if inside else (0.0, number)
        if not inside and gate[3] == 0:
            kept[low:high] = ZERO
        elif not inside and gate[3] == 1:
            acts[low:high] = ZERO
    return True


@inlined
@no_type_check
def _too_close(gate, bounds, lowest, highest, x, number):
    """Whether the rounding of an exponential could decide: the plain form's own is 1e-7 of each log-ratio."""
    typical = f32(sum_of_magnitudes(x))
    if gate[2] == 0:
        typical = typical / f32(max(number, 1.0))
    elif gate[2] > 1:
        typical = greatest_magnitude(x)
    near = False
    for value, bound in ((lowest, bounds[0]), (highest, bounds[1])):
        if abs(bound) < INFINITY:
            near |= abs(value - bound) <= f32(4e-7) * typical + f32(2e-6) * abs(bound)
    return near


@inlined
@no_type_check
def _weigh(x, part, weight, limits, scratch, out, rows, sums, tops):
    """The weight of each token, and its sums over the kept ones."""
    n = len(x)
    here, kept, acts = of_scratch(scratch, HERE, n), of_scratch(scratch, KEPT, n), of_scratch(scratch, ACTS, n)
    one, log, ratio = of_scratch(scratch, ONE_, n), of_scratch(scratch, LOG, n), of_scratch(scratch, RATIO, n)
    three, value = of_scratch(scratch, THREE, n), of_scratch(scratch, VALUE, n)
    scope = kept if weight[2] == 1 else here
    known = weight[2] == 0 and weight[3] != 1
    raw = x
    if not known and weight[0] > 0:
        held(x, limits[4] if weight[3] == 1 else INFINITY, one)
        times(one, scope, log)
        raw = log
    if weight[0] == 1:
        if not known:
            exponential(raw, three)
            ratio = three
        if weight[1] == 0:
            bound_between(ratio, limits[0], limits[1], value)
        else:
            zero_beyond(ratio, raw, limits[2], limits[3], value)
        sums[14] += sum_of_chunk(scope)
        if limits[3] < INFINITY:
            sums[15] += count_marked_above(raw, scope, limits[3])
        if limits[2] > -INFINITY:
            sums[16] += count_marked_below(raw, scope, limits[2])
    elif not _weigh_rows(raw, scope, part, weight, limits, rows, value, sums, known):
        return False
    all_times(kept, acts, value, out)
    for row in range(len(rows)):
        rows[row, 3] = sum_of_chunk(kept[part[row] - part[0] : part[row + 1] - part[0]])
        sums[11] += rows[row, 3]
    first, second = weight_sums(out)
    sums[12] += first
    sums[13] += second
    low, high = extremes(out, kept)
    tops[4] = max(tops[4], high)
    tops[5] = max(tops[5], -low)
    return True


@inlined
@no_type_check
def _weigh_rows(raw, scope, part, weight, limits, rows, value, sums, known):
    """One weight for each row; without a weight, 1."""
    for row in range(len(rows)):
        low, high = part[row] - part[0], part[row + 1] - part[0]
        found = ONE
        if weight[0] > 1:
            number = rows[row, 0] if known else sum_of_chunk(scope[low:high])
            total = rows[row, 1] if known else sum_of_chunk(raw[low:high])
            log = f32(total / max(number, 1.0) if weight[0] == 2 else total)
            if weight[3] == 2:
                log = min(max(log, -limits[4]), limits[4])
            found = f32(np.exp(np.float64(log))) if log < f32(88.7) else LARGEST
            if weight[1] == 0:
                found = min(max(found, limits[0]), limits[1])
            elif log < limits[2] or log > limits[3]:
                found = ZERO
            if found > MOST:
                return False
            rows[row, 4] = log
            sums[14] += number
            sums[15] += number if log > limits[3] else 0.0
            sums[16] += number if log < limits[2] else 0.0
        value[low:high] = found
    return True
