# pyright: basic
"""The pass over the tokens: chunks of whole rows go through every gate, the weight and the sums while they lie in the cache.

    log-probs ─► log r, trained ─► sums of each row, exponentials ─┬─► by rows:   a verdict for each row ──┬─► kept, weight
                                                                   └─► by tokens: gates over the chunk ────┘

Padded rows and packed sequences are one thing here: rows that lie between offsets.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from trimtab.core.fast.by_rows import decide_row
from trimtab.core.fast.by_tokens import K3, RATIO, VALUE, judge_chunk, of_scratch, weigh_chunk
from trimtab.core.fast.exponential import NEAR, exponential, ratios_and_k3
from trimtab.core.fast.machine import BLOCK, INFINITY, ZERO, compiled, f32, f64, inlined
from trimtab.core.fast.places import DONE, PLAIN, TOKENS
from trimtab.core.fast.tokens import (
    count_bytes,
    is_near,
    last_counted,
    measure_block,
    positive_tokens,
    split_block,
    split_row,
)
from trimtab.core.fast.totals import sum_of_chunk, sum_of_squares

CHUNK = 2048
"""Tokens (and rows) of a chunk of short rows; a longer row is a chunk of its own."""
SCRATCH, ENDS = 3 * CHUNK, CHUNK + 1
"""Numbers of scratch of a pass by rows, and offsets of a chunk."""
FAR, HUGE = f32(20.0), f32(80.0)


@compiled()
@no_type_check
def longest_chunk(offsets):
    """How many tokens scratch has to hold."""
    longest = 0
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return max(longest, CHUNK)


@compiled()
@no_type_check
def decide_rows(
    a,
    b,
    mask,
    offsets,
    gates,
    bounds,
    weighs,
    limits,
    plan,
    scratch,
    ends,
    log_r,
    weights,
    trained,
    kept,
    rows,
    sums,
    tops,
):
    """Run a program over all rows. `plan`: by rows alone, moments asked for, k3 needed, the least limit on a token, weights
    without their sums. `ends`: room for the offsets of a chunk."""
    by_rows, first, number = plan[0] != 0, 0, len(offsets) - 1
    while first < number:
        start = offsets[first]
        last = end_of_chunk(offsets, first)
        whole = offsets[last]
        stop = start + last_counted(mask[start:whole])
        log_r[stop:whole], weights[stop:whole], trained[stop:whole], kept[stop:whole] = ZERO, ZERO, 0, 0
        part, own = row_ends(offsets, first, last, stop, ends), rows[first:last]
        given = a[start:stop], b[start:stop], mask[start:stop]
        tokens = log_r[start:stop], trained[start:stop], kept[start:stop], weights[start:stop]
        if by_rows:
            state = decide_chunk(given, part, tokens, gates, bounds, weighs, limits, plan, scratch, own, sums, tops)
        else:
            state = _decide_by_tokens(
                given, part, tokens, gates, bounds, weighs, limits, plan, scratch, own, sums, tops
            )
        if state != DONE:
            return state
        first = last
    return DONE


@compiled()  # two loops share it: inlined, it would be compiled for each
@no_type_check
def decide_chunk(given, part, tokens, gates, bounds, weighs, limits, plan, scratch, rows, sums, tops):
    """Decide the rows of a chunk, which lie between the offsets `part`, by their sums and extremes.

    `given`: log-probs of both policies, and the mask. `tokens`: where log r, trained, kept and the weight go.
    """
    x, here, stays, out = tokens
    weighs_tokens = weighs[0] == 1 and plan[4] == 0
    if len(rows) == 1:
        far, certain = _take_row(given, tokens, scratch, weighs_tokens, plan, rows[0], sums, tops)
    else:
        far, certain = _split_rows(given[0], given[1], given[2], part, x, here, stays, rows, sums, tops)
    state = _state(far, certain, True, plan[3])
    if state != DONE:
        return state
    if len(rows) > 1:
        sums[10] += positive_tokens(given[0], given[1], here, certain) if plan[1] != 0 else 0
        _measure_rows(x, given[1], part, far, out, scratch, weighs_tokens, plan, rows, sums, tops)
    for row in range(len(rows)):
        low, high = part[row], part[row + 1]
        own = x[low:high], here[low:high], stays[low:high], out[low:high]
        state = decide_row(rows[row], own, rows[row, 9], gates, bounds, weighs, limits, plan[4] != 0, sums, tops)
        if state != DONE:
            return state
    return DONE


@inlined
@no_type_check
def _decide_by_tokens(given, part, tokens, gates, bounds, weighs, limits, plan, scratch, rows, sums, tops):
    """The same with another look at the tokens."""
    x, here, stays, out = tokens
    far, certain = _split_rows(given[0], given[1], given[2], part, x, here, stays, rows, sums, tops)
    state = _state(far, certain, False, plan[3])
    if state != DONE:
        return state
    if plan[1] != 0:
        sums[10] += positive_tokens(given[0], given[1], here, certain)
    if len(x) == 0:
        return DONE
    _exponentials_of_chunk(x, given[1], far, scratch, plan[1] != 0, sums, tops)
    sound = judge_chunk(x, part, here, gates, bounds, scratch, rows, sums, tops)
    sound = sound and weigh_chunk(x, part, weighs, limits, scratch, out, stays, rows, sums, tops)
    return DONE if sound else PLAIN


@inlined
@no_type_check
def _state(far, certain, by_rows, limit):
    """Whether a chunk can be decided so: its numbers are near enough and, by rows alone, no token reaches a limit."""
    if far > FAR or certain > HUGE:
        return PLAIN
    return TOKENS if by_rows and far > limit else DONE


@inlined
@no_type_check
def end_of_chunk(offsets, first):
    """One past the last row of the chunk that starts with a row."""
    last, start = first + 1, offsets[first]
    while last < len(offsets) - 1 and offsets[last + 1] - start <= CHUNK and last - first < CHUNK:
        last += 1
    return last


@compiled()
@no_type_check
def write_ends(offsets, first, last, stop, ends):
    """Where the rows of a chunk begin and end in it, less the padding behind `stop`."""
    for row in range(first, last + 1):
        ends[row - first] = min(offsets[row], stop) - offsets[first]


@inlined
@no_type_check
def row_ends(offsets, first, last, stop, ends):
    """The same, as a part of `ends`."""
    write_ends(offsets, first, last, stop, ends)
    return ends[: last - first + 1]


@inlined
@no_type_check
def _split_rows(a, b, mask, part, log_r, trained, kept, rows, sums, tops):
    """Log-ratios and marks of a chunk, and the sums of its rows; the greatest |log r| and log-prob."""
    far, certain, number = f32(-np.inf), ZERO, 0
    for row in range(len(rows)):
        low, high = part[row], part[row + 1]
        found = split_row(a[low:high], b[low:high], mask[low:high], log_r[low:high], trained[low:high], kept[low:high])
        note_row(rows[row], found, sums, tops)
        number += found[0]
        far, certain = max(far, -found[3], found[4]), max(certain, found[5])
    sums[0] += len(mask) if number == len(mask) else count_bytes(mask)
    return far, certain


@compiled()
@no_type_check
def note_row(row, found, sums, tops):
    """Take down what a row was split into, and add it to the sums of the batch."""
    row[0], row[1], row[2] = found[0], found[1], found[2]
    row[5], row[6] = found[3], found[4]
    sums[1] += found[0]
    sums[2] += found[1]
    tops[0] = max(tops[0], -f64(found[3]), f64(found[4]))
    tops[1] = max(tops[1], f64(found[4]))
    tops[2] = max(tops[2], -f64(found[3]))
    tops[6] = max(tops[6], f64(found[5]))


@inlined
@no_type_check
def _take_row(given, tokens, scratch, weighs_tokens, plan, row, sums, tops):
    """Both for one row, block by block while it lies in the nearest cache: split, then its exponentials and moments, where asked for.

    Ratios go where weights do if they become such. The greatest |log r| and log-prob; beyond FAR nothing is worked out.
    """
    a, b, mask = given
    x, here, stays, out = tokens
    number, total, base, square, third, linear = 0, 0.0, 0.0, 0.0, 0.0, 0.0
    low, high, certain = INFINITY, -INFINITY, ZERO
    for start in range(0, len(x), BLOCK):
        n = min(BLOCK, len(x) - start)
        to = start + n
        one, two, log_r, marks = a[start:to], b[start:to], x[start:to], here[start:to]
        found = split_block(one, two, mask[start:to], log_r, marks, stays[start:to])
        number += found[0]
        total += found[1]
        base += found[2]
        low, high, certain = min(low, found[3]), max(high, found[4]), max(certain, found[5])
        far = max(-found[3], found[4])
        ratio = out[start:to] if weighs_tokens else scratch[2 * BLOCK : 2 * BLOCK + n]
        k3 = scratch[BLOCK : BLOCK + n]
        if far > FAR:
            continue
        if plan[1] != 0:
            sums[10] += positive_tokens(one, two, marks, found[5])
            added = measure_block(log_r, two, far <= NEAR, scratch[:n], ratio, k3, sums, tops)
            square += added[0]
            third += added[1]
            linear += added[2]
        elif plan[2] != 0:
            ratios_and_k3(log_r, ratio, k3)
            third += sum_of_chunk(k3)
        elif weighs_tokens:
            exponential(log_r, ratio)
    note_row(row, (number, total, base, low, high, certain), sums, tops)
    row[8], row[9], row[10] = square, third, linear
    sums[0] += len(mask) if number == len(mask) else count_bytes(mask)
    return max(-low, high), certain


@inlined
@no_type_check
def _measure_rows(x, base, part, far, out, scratch, weighs_tokens, plan, rows, sums, tops):
    """The same of short rows, all at once; each has its part of the sums."""
    n = len(x)
    excess, k3 = scratch[:n], scratch[CHUNK : CHUNK + n]
    ratio = out if weighs_tokens else scratch[2 * CHUNK : 2 * CHUNK + n]
    if plan[1] != 0:
        for start in range(0, n, BLOCK):
            to = min(start + BLOCK, n)
            room = excess[start:to], ratio[start:to], k3[start:to]
            near = is_near(x[start:to], far)
            measure_block(x[start:to], base[start:to], near, room[0], room[1], room[2], sums, tops)
    elif plan[2] != 0:
        ratios_and_k3(x, ratio, k3)
    elif weighs_tokens:
        exponential(x, ratio)
    for row in range(len(rows)):
        low, high = part[row] - part[0], part[row + 1] - part[0]
        if plan[1] != 0:
            rows[row, 8], rows[row, 10] = sum_of_squares(excess[low:high]), sum_of_chunk(excess[low:high])
        if plan[1] != 0 or plan[2] != 0:
            rows[row, 9] = sum_of_chunk(k3[low:high])


@inlined
@no_type_check
def _exponentials_of_chunk(x, base, far, scratch, observes, sums, tops):
    """The moments, where asked for; ratios and k3 are left in scratch."""
    ratio, k3 = of_scratch(scratch, RATIO, len(x)), of_scratch(scratch, K3, len(x))
    if not observes:
        ratios_and_k3(x, ratio, k3)
        return
    excess = of_scratch(scratch, VALUE, len(x))
    for start in range(0, len(x), BLOCK):
        to = min(start + BLOCK, len(x))
        room = excess[start:to], ratio[start:to], k3[start:to]
        near = is_near(x[start:to], far)
        measure_block(x[start:to], base[start:to], near, room[0], room[1], room[2], sums, tops)
