# pyright: basic
"""Exact order statistics of a batch: one count of its numbers by the upper halves of their bits finds the bin of each rank, one count
by the lower halves of those bins the value. Few numbers are sorted.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from trimtab.core.fast.fold import shown_value
from trimtab.core.fast.machine import BLOCK, SIGN, compiled, f32, i32, one_of
from trimtab.core.fast.places import ROW, ROW_GATE
from trimtab.core.fast.tokens import count_bytes

BINS = 65536
FEW = 4096
"""Numbers that are sorted faster than the bins are cleared."""
_GROUP = 32
_NEGATIVE_ZERO = i32(-2147483648)


@compiled()
@no_type_check
def in_order(bits, magnitude):
    """The bits of a float32 as an integer in the same order; −0 and 0 are one value. `magnitude` (ones or zeros): of |value|."""
    bits = i32(bits & ~(-i32(bits == _NEGATIVE_ZERO)))
    return i32((bits ^ i32(i32(bits >> i32(31)) & SIGN & ~magnitude)) & i32(~(_NEGATIVE_ZERO & magnitude)))


@compiled()
@no_type_check
def _keys(bits, marks, magnitude, out):
    """The bin of each number, by the upper half of its bits in order; what is not marked has a bin of its own."""
    for i in range(len(out)):
        key = i32(i32(in_order(bits[i], magnitude) >> i32(16)) + i32(BINS // 2))
        out[i] = one_of(-i32(marks[i] != 0), key, i32(BINS))


@compiled()
@no_type_check
def count_bins(bits, marks, keys, step, counts):
    """Add `step` for each marked number to the count of its bin. `keys`: scratch for a block."""
    for start in range(0, len(bits), BLOCK):
        to = min(start + BLOCK, len(bits))
        if count_bytes(marks[start:to]) > 0:
            _keys(bits[start:to], marks[start:to], i32(0), keys[: to - start])
            for i in range(to - start):
                counts[keys[i]] += step


@compiled()
@no_type_check
def fold_signs(counts, out):
    """The counts of |value| from those of the values."""
    half = BINS // 2
    out[:] = 0
    for place in range(half):
        out[half + place] = counts[half + place] + counts[half - 1 - place]


@compiled()
@no_type_check
def _find(counts, ranks, bins, rest):
    """The bin of each rank (from 1, rising), and its rank within."""
    before, place, done = 0, 0, 0
    while done < len(ranks):
        if before + counts[place] >= ranks[done]:
            bins[done], rest[done] = place, ranks[done] - before
            done += 1
        else:
            before += counts[place]
            place += 1


@compiled()
@no_type_check
def _hits(keys, bins):
    """How many keys are among three bins."""
    number, one, two, three = i32(0), bins[0], bins[len(bins) // 2], bins[-1]
    for i in range(len(keys)):
        number = i32(number + i32((keys[i] == one) | (keys[i] == two) | (keys[i] == three)))
    return number


@compiled()
@no_type_check
def values_at(bits, marks, counts, ranks, magnitude, keys, found):
    """The values of up to three ranks (from 1, rising) among the marked ones, whose counts by bins are known."""
    bins, rest = np.zeros(len(ranks), np.int32), np.zeros(len(ranks), np.int64)
    _find(counts, ranks, bins, rest)
    fine = np.zeros((len(ranks), BINS), np.int32)
    for start in range(0, len(bits), BLOCK):
        to = min(start + BLOCK, len(bits))
        if count_bytes(marks[start:to]) == 0:  # padding
            continue
        _keys(bits[start:to], marks[start:to], magnitude, keys[: to - start])
        for low in range(0, to - start, _GROUP):
            high = min(low + _GROUP, to - start)
            if _hits(keys[low:high], bins) > 0:
                for i in range(low, high):
                    for k in range(len(bins)):
                        if keys[i] == bins[k]:
                            fine[k, in_order(bits[start + i], magnitude) & i32(0xFFFF)] += 1
    for k in range(len(ranks)):
        place, left = 0, rest[k]
        while left > fine[k, place]:
            left -= fine[k, place]
            place += 1
        order = i32(((bins[k] - BINS // 2) << 16) + place)
        found[k] = i32(order ^ i32(i32(order >> i32(31)) & SIGN)).view(f32)


@compiled()
@no_type_check
def sorted_values(value, marks, ranks, magnitude, found):
    """The same by sorting."""
    room = np.empty(len(value), np.float32)
    number = 0
    for i in range(len(value)):
        if marks[i]:
            room[number] = abs(value[i]) if magnitude else value[i]
            number += 1
    order = np.sort(room[:number])
    for k in range(len(ranks)):
        found[k] = order[ranks[k] - 1]


@compiled()
@no_type_check
def gate_values(rows, g, is_log, lower, upper, shares, found):
    """The given shares of what a gate measured in rows with tokens; 0 where there are none."""
    shown = np.empty(len(rows), np.float32)
    number = 0
    for row in range(len(rows)):
        own = rows[row, ROW + g * ROW_GATE :]
        if own[0] > 0:
            shown[number] = shown_value(own[1], own[2], lower, upper, is_log)
            number += 1
    order = np.sort(shown[:number])
    for k in range(len(shares)):
        found[k] = order[max(int(np.ceil(shares[k] * number)), 1) - 1] if number else f32(0)


@compiled()
@no_type_check
def clear_rows(offsets, rows, column, marks):
    """Clear the marks of rows whose number in a column is 0."""
    for row in range(len(rows)):
        if rows[row, column] == 0:
            marks[offsets[row] : offsets[row + 1]] = 0


@compiled()
@no_type_check
def row_weights(rows, ranks, found):
    """The weights at the given ranks among the kept tokens, where each row has one weight."""
    order = np.argsort(rows[:, 4])
    before, place, done = 0.0, 0, 0
    while done < len(ranks):
        row = order[place]
        if before + rows[row, 3] >= ranks[done]:
            found[done] = rows[row, 4]
            done += 1
        else:
            before += rows[row, 3]
            place += 1
