# pyright: basic
"""Rules that have to look at tokens again: gates on tokens, statistics over what earlier gates left, limits that bite, other divergences.

Indicators are numbers here, 1.0 and 0.0, in a scratch of SCRATCH arrays as long as the chunk.
"""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.divergence import divergence
from trimtab.core.fast.exponential import exponential
from trimtab.core.fast.machine import INFINITY, ONE, ZERO, f32, inlined
from trimtab.core.fast.marks import (
    all_times,
    as_bytes,
    as_marks,
    bound_between,
    held,
    mark_inside,
    narrow,
    times,
    zero_beyond,
)
from trimtab.core.fast.places import FIRST_EXPONENTIAL, GATE_SUMS, ROW, ROW_GATE, TOKEN_SUMS, TOKEN_TOPS
from trimtab.core.fast.totals import (
    count_outside,
    extremes,
    greatest_magnitude,
    product_sum,
    square_sum,
    sum_of_chunk,
    sum_of_magnitudes,
    weight_sums,
)
from trimtab.core.fast.verdict import MOST, beside_bound, row_weight

SCRATCH = 10
"""Numbers of scratch for each token of a chunk."""
K3, RATIO, HERE, KEPT, ACTS, LOG, ONE_, TWO, THREE, VALUE = range(SCRATCH)
"""What stands where in scratch: exponentials, indicators, the log-ratio as a gate reads it, and room to work in."""


@inlined
@no_type_check
def of_scratch(scratch, name, n):
    """One array of scratch: contiguous, and apart from all others."""
    start = name * (len(scratch) // SCRATCH)
    return scratch[start : start + n]


@inlined
@no_type_check
def judge_chunk(x, part, trained, gates, bounds, scratch, rows, sums, tops):
    """The gates in order; 1 on the tokens that are kept, and on those that are not zeroed, is left in scratch."""
    n = len(x)
    here, kept, acts = of_scratch(scratch, HERE, n), of_scratch(scratch, KEPT, n), of_scratch(scratch, ACTS, n)
    one, two, three = of_scratch(scratch, ONE_, n), of_scratch(scratch, TWO, n), of_scratch(scratch, THREE, n)
    log, value, k3 = of_scratch(scratch, LOG, n), of_scratch(scratch, VALUE, n), of_scratch(scratch, K3, n)
    as_marks(trained, here)
    as_marks(trained, kept)
    acts[:] = ONE
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
    above, below = count_outside(value, scope, bounds[0], bounds[1])
    sums[2] += above
    sums[3] += below
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
        if gate[0] >= FIRST_EXPONENTIAL and beside_bound(bounds, lowest, highest, _typical(gate, x[low:high], number)):
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
def _typical(gate, x, number):
    """What the rounding of a gathered exponential goes by."""
    if gate[2] > 1:
        return greatest_magnitude(x)
    return f32(sum_of_magnitudes(x) / (max(number, 1.0) if gate[2] == 0 else 1.0))


@inlined
@no_type_check
def weigh_chunk(x, part, weight, limits, scratch, out, stays, rows, sums, tops):
    """The weight of each token, its sums over the kept ones, and what is kept."""
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
        above, below = count_outside(raw, scope, limits[2], limits[3])
        sums[15] += above
        sums[16] += below
    elif not _weigh_rows(raw, scope, part, weight, limits, rows, value, sums, known):
        return False
    all_times(kept, acts, value, out)
    as_bytes(kept, stays)
    number = 0.0
    for row in range(len(rows)):
        rows[row, 3] = sum_of_chunk(kept[part[row] - part[0] : part[row + 1] - part[0]])
        number += rows[row, 3]
    first, second = weight_sums(out)
    sums[11] += number
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
            log, found = row_weight(log, weight, limits)
            if found > MOST:
                return False
            rows[row, 4], rows[row, 7] = found, log
            sums[14] += number
            sums[15] += number if log > limits[3] else 0.0
            sums[16] += number if log < limits[2] else 0.0
        value[low:high] = found
    return True
