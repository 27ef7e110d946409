# pyright: basic
"""The quantiles of a correction: each the least value with at least that share of the counted ones at or below it.

They are exact: one count of the numbers by the upper halves of their bits finds the bin of each rank, one count by the lower halves of
those bins the value. Few numbers are sorted.
"""

from __future__ import annotations

import math
from typing import Any, no_type_check

import numpy as np

from trimtab.core.fast.decide import FastRun, flat, flat_marks
from trimtab.core.fast.fits import ON_TOKENS, RATIO, REJECT, TOKEN
from trimtab.core.fast.gate import divergence
from trimtab.core.fast.loops import (
    BLOCK,
    SIGN,
    compiled,
    count_bytes,
    exponential_of,
    f32,
    float_at,
    i32,
    one_of,
)
from trimtab.core.fast.stages import SCRATCH, shown
from trimtab.core.sums import MOST, POINTS

SHARES = tuple(POINTS.values())
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
    count = _total(counts[:_STRIDE])
    while rank > count:
        rank -= count
        place += _STRIDE
        count = _total(counts[place : place + _STRIDE])
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
def values_at(bits, marks, counts, ranks, out):
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
        out[k] = float_at(i32(((bins[k] - BINS // 2) << 16) + place))


@compiled(allocates=True)
@no_type_check
def sorted_values(value, marks, ranks, out):
    """The same by sorting."""
    room = np.empty(len(value), np.float32)
    number = 0
    for i in range(len(value)):
        if marks[i]:
            room[number] = value[i]
            number += 1
    order = np.sort(room[:number])
    for k in range(3):
        out[k] = order[ranks[k] - 1]
    if ranks[3] > 0:
        out[3] = np.sort(np.abs(order))[ranks[3] - 1]


@compiled(allocates=True)
@no_type_check
def _gate_values(judged, g, gate, shares, out):
    """The given shares of what a gate measured in rows with tokens; 0 where there are none."""
    values = np.empty(len(judged), np.float32)
    number = 0
    for r in range(len(judged)):
        if judged[r, g].tokens > 0:
            values[number] = shown(judged[r, g], gate)
            number += 1
    order = np.sort(values[:number])
    for k in range(len(shares)):
        out[k] = order[max(int(np.ceil(shares[k] * number)), 1) - 1] if number else f32(0)


@compiled(allocates=True)
@no_type_check
def _row_weights(rows, ranks, out):
    """The weights at the given ranks among the kept tokens, where each row has one weight."""
    weights = np.empty(len(rows))
    for r in range(len(rows)):
        weights[r] = rows[r].weight
    order = np.argsort(weights)
    before, place, done = 0.0, 0, 0
    while done < len(ranks):
        row = rows[order[place]]
        if before + row.kept >= ranks[done]:
            out[done] = row.weight
            done += 1
        else:
            before += row.kept
            place += 1


def ratio_quantiles(run: FastRun) -> dict[str, float]:
    """The raw ratio where one token cannot own the figure, and the middle of |ℓ|."""
    values = run.log_r_quantiles
    return _by_name("ratio", [math.exp(each) for each in values[:3]]) | {"drift/abs_log_r_p50": sum(values[3:])}


def _by_name(prefix: str, values: list[float]) -> dict[str, float]:
    """The quantiles by name; 0 where there is nothing to count."""
    return {f"{prefix}/{point}": value for point, value in zip(POINTS, values or [0.0] * len(POINTS), strict=True)}


def weight_quantiles(run: FastRun) -> dict[str, float]:
    """The weight where one token cannot own the figure."""
    return _by_name("weight", [min(value, MOST) for value in _weights(run, int(run.total["kept"]))])


def _weights(run: FastRun, number: int) -> list[float]:
    weight = run.program.weight
    if number and weight["level"] > TOKEN and not run.program.zeroes_tokens:
        values = np.empty(len(SHARES))
        _row_weights(run.rows, _ranks(number), values)
        return values.tolist()
    if weight["level"] != TOKEN or weight["drops"] or weight["limit_at"] == ON_TOKENS or run.program.zeroes:
        return values_at_shares(run.weight, run.kept, number)
    # A truncated weight rises with its ratio, so that both have the same order, and the quantiles of the ratio are known.
    lower, upper = float(weight["lower"]), float(weight["upper"])
    return [min(max(float(exponential_of(f32(log))), lower), upper) for log in run.kept_log_r_quantiles]


def gate_quantiles(index: int, prefix: str, run: FastRun) -> dict[str, float]:
    """What a gate measured, where one unit cannot dominate."""
    gate, name = run.program.gates[index], prefix.removesuffix("/")
    if gate["by_row"]:
        values = np.empty(len(SHARES), np.float32)
        _gate_values(run.judged, index, gate, SHARES, values)
        return _by_name(name, values.tolist())
    values = _token_gate_values(run, index)
    return _by_name(name, [math.exp(each) for each in values] if gate["metric"] == RATIO else values)


def _token_gate_values(run: FastRun, index: int) -> list[float]:
    gate, number = run.program.gates[index], float(run.judged["tokens"][:, index].sum())
    if gate["sign"] == 1 and gate["limit_at"] != ON_TOKENS:
        if number == run.total["tokens"]:
            return run.log_r_quantiles[:3]
        if number == run.total["kept"]:  # no gate takes what was taken before: those it looked at are all that are kept
            return run.kept_log_r_quantiles
    return _shares(_token_values(run, gate), _tokens_before(run, index), int(number), 0)


def _token_values(run: FastRun, gate: Any) -> Any:
    """What a gate on tokens measures in each token, worked out again."""
    x = flat(run.log_r)
    limit = gate["limit"] if gate["limit_at"] == ON_TOKENS else np.float32(np.inf)
    out = np.empty_like(x)
    divergence(gate["metric"], x, limit, np.empty((SCRATCH, len(x)), np.float32), out)
    return out


def _tokens_before(run: FastRun, index: int) -> Any:
    """The tokens a gate on tokens looked at: every trained one, or those that earlier gates kept."""
    gates, tokens = run.program.gates, flat_marks(run.trained)
    for before in range(index if gates[index]["of_kept"] else 0):
        gate = gates[before]
        if gate["action"] == REJECT and gate["by_row"]:
            tokens = tokens & np.repeat(run.judged["lost"][:, before] == 0, np.diff(run.offsets))
        elif gate["action"] == REJECT:
            value = _token_values(run, gate)
            tokens = tokens & (value >= gate["lower"]) & (value <= gate["upper"])
    return tokens


def _ranks(number: int) -> tuple[int, ...]:
    return tuple(max(math.ceil(share * number), 1) for share in SHARES)


def log_r_quantiles(run: FastRun) -> list[float]:
    """The shares of the trained log-ratios, then the middle of their magnitudes; none where none counts."""
    number = int(run.total["tokens"])
    return _shares(flat(run.log_r), flat_marks(run.trained), number, max(math.ceil(number / 2), 1), run.log_r_counts)


def kept_log_r_quantiles(run: FastRun) -> list[float]:
    """The shares of the kept log-ratios."""
    number, kept = int(run.total["kept"]), flat_marks(run.kept)
    if number == int(run.total["tokens"]):
        return run.log_r_quantiles[:3]
    counts = run.log_r_counts.copy()
    if len(counts):  # less those that do not count
        count_bins(
            flat(run.log_r).view(np.int32), flat_marks(run.trained) ^ kept, np.empty(BLOCK, np.int32), -1, counts
        )
    return _shares(flat(run.log_r), kept, number, 0, counts)


def values_at_shares(value: Any, counted: Any, number: int) -> list[float]:
    """The shares of so many counted values; none where none counts."""
    return _shares(flat(value), flat_marks(counted), number, 0)


def counts_of(values: Any, marks: Any) -> Any:
    """How many marked values lie in each bin; nothing of so few that they are sorted."""
    if len(values) <= FEW:
        return np.zeros(0, np.int32)
    counts = np.zeros(BINS + 1, np.int32)
    count_bins(values.view(np.int32), marks, np.empty(BLOCK, np.int32), 1, counts)
    return counts


def _shares(values: Any, marks: Any, number: int, middle: int, counts: Any = None) -> list[float]:
    """The shares of so many marked values, whose counts by bins may be known. `middle`: a rank among magnitudes, or 0."""
    if number == 0:
        return []
    counts = counts_of(values, marks) if counts is None else counts
    ranks, out = np.array([*_ranks(number), middle]), np.empty(4 if middle else 3, np.float32)
    if len(counts):
        values_at(values.view(np.int32), marks, counts, ranks, out)
    else:
        sorted_values(values, marks, ranks, out)
    return out.tolist()
