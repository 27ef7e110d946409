# pyright: basic
"""Exact order statistics of a batch: one count of its numbers by the upper halves of their bits finds the bin of each rank, one count
by the lower halves of those bins the value. Few numbers are sorted.
"""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from trimtab.core.fast.fold import shown_value
from trimtab.core.fast.machine import BLOCK, SIGN, compiled, f32, float_at, i32, one_of
from trimtab.core.fast.places import ROW, ROW_GATE
from trimtab.core.fast.tokens import count_bytes

BINS = 65536
FEW = 4096
"""Numbers that are sorted faster than the bins are cleared."""
_STRIDE = 256
_NEGATIVE_ZERO, _LOWER = i32(-2147483648), i32(0xFFFF)


@compiled()
@no_type_check
def in_order(bits):
    """The bits of a float32 as an integer in the same order; −0 and 0 are one value, and −v has the complement of v."""
    bits = i32(bits & ~(-i32(bits == _NEGATIVE_ZERO)))
    return i32(bits ^ i32(i32(bits >> i32(31)) & SIGN))


@compiled()
@no_type_check
def _bin_of(bits):
    """The bin of a number, by the upper half of its bits in order."""
    return i32(i32(in_order(bits) >> i32(16)) + i32(BINS // 2))


@compiled()
@no_type_check
def _keys(bits, marks, out):
    """The bin of each number; what is not marked has a bin of its own."""
    for i in range(len(out)):
        out[i] = one_of(-i32(marks[i] != 0), _bin_of(bits[i]), i32(BINS))


@compiled()
@no_type_check
def count_bins(bits, marks, keys, step, counts):
    """Add `step` for each marked number to the count of its bin. `keys`: scratch for a block."""
    for start in range(0, len(bits), BLOCK):
        to = min(start + BLOCK, len(bits))
        if count_bytes(marks[start:to]) > 0:
            _keys(bits[start:to], marks[start:to], keys[: to - start])
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
def _total(counts):
    total = i32(0)
    for i in range(len(counts)):
        total = i32(total + counts[i])
    return total


@compiled()
@no_type_check
def _find(counts, rank):
    """The bin of a rank (from 1), and its rank within."""
    place = 0
    whole = _total(counts[:_STRIDE])
    while rank > whole:
        rank -= whole
        place += _STRIDE
        whole = _total(counts[place : place + _STRIDE])
    while rank > counts[place]:
        rank -= counts[place]
        place += 1
    return place, rank


@compiled()
@no_type_check
def _mark_wanted(bits, marks, bins, out):
    """A byte for each number: whether it is marked and in one of five bins."""
    one, two, three, four, five = bins[0], bins[1], bins[2], bins[3], bins[4]
    for i in range(len(bits)):
        key = _bin_of(bits[i])
        wanted = (key == one) | (key == two) | (key == three) | (key == four) | (key == five)
        out[i] = wanted & (marks[i] != 0)


@compiled(allocates=True)
@no_type_check
def _bins_of(counts, ranks, bins, rest):
    """The bins of three ranks and, if it is not 0, of a fourth among magnitudes: one of positive numbers, one of negative ones."""
    for k in range(3):
        bins[k], rest[k] = _find(counts, ranks[k])
    bins[3] = bins[4] = bins[0]
    if ranks[3] > 0:
        folded = np.empty(BINS, np.int32)
        fold_signs(counts, folded)
        bins[3], rest[3] = _find(folded, ranks[3])
        bins[4] = i32(BINS - 1) - bins[3]


@compiled()
@no_type_check
def _count_fine(bits, wanted, bins, fine):
    """Count the wanted numbers of each bin by the lower halves of their bits. Few are: words of eight are looked at first."""
    words = wanted.view(np.uint64)
    for word in range(len(words)):
        if words[word] == 0:
            continue
        for i in range(8 * word, 8 * word + 8):
            if not wanted[i]:
                continue
            key, order = _bin_of(bits[i]), in_order(bits[i])
            for k in range(4):
                if key == bins[k]:
                    fine[k, order & _LOWER] += 1
            if key == bins[4] != bins[3]:
                fine[3, ~order & _LOWER] += 1


@compiled(allocates=True)
@no_type_check
def values_at(bits, marks, counts, ranks, found):
    """The values of three ranks (from 1, rising) among the marked ones, whose counts by bins are known; and of a fourth among their
    magnitudes, if it is not 0."""
    bins, rest = np.zeros(5, np.int32), np.zeros(4, np.int64)
    _bins_of(counts, ranks, bins, rest)
    fine, wanted = np.zeros((4, BINS), np.int32), np.zeros(BLOCK, np.uint8)
    for start in range(0, len(bits), BLOCK):
        to = min(start + BLOCK, len(bits))
        if count_bytes(marks[start:to]) == 0:  # padding
            continue
        wanted[to - start :] = 0
        _mark_wanted(bits[start:to], marks[start:to], bins, wanted)
        _count_fine(bits[start:to], wanted, bins, fine)
    for k in range(4 if ranks[3] > 0 else 3):
        place, _ = _find(fine[k], rest[k])
        found[k] = float_at(i32(((bins[k] - BINS // 2) << 16) + place))


@compiled(allocates=True)
@no_type_check
def sorted_values(value, marks, ranks, found):
    """The same by sorting."""
    room = np.empty(len(value), np.float32)
    number = 0
    for i in range(len(value)):
        if marks[i]:
            room[number] = value[i]
            number += 1
    order = np.sort(room[:number])
    for k in range(3):
        found[k] = order[ranks[k] - 1]
    if ranks[3] > 0:
        found[3] = np.sort(np.abs(order))[ranks[3] - 1]


@compiled(allocates=True)
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


@compiled(allocates=True)
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
