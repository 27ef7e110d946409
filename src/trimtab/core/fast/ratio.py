# pyright: basic
"""The log-ratio of every token, its exponentials, and the sums of both: what is worked out whatever a rule asks for."""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.loops import (
    BLOCK,
    BOTTOM,
    HIGHEST,
    INFINITY,
    LOWEST,
    NEAR,
    SUMMED,
    TOP,
    ZERO,
    between,
    bits_in_order,
    compiled,
    count_bytes,
    exponential_of,
    exponential_parts,
    f32,
    f64,
    float_at,
    greatest_magnitude,
    i32,
    inlined,
    k3_reversed,
    near_parts,
    one_of,
    where_marked,
)
from trimtab.core.inputs import ROUNDING

SHORT = 128
"""Tokens of a row below which several are measured at once."""
POSITIVE = f32(ROUNDING)
"""A log-prob up to here is one above 0 by rounding."""


@compiled()
@no_type_check
def _apart(target, base, mask):
    """log target − log base, and a mark where a token counts and both are finite."""
    apart = target - base
    return -i32((mask != 0) & ((apart - apart) == ZERO)), apart


@compiled(fastmath=SUMMED)
@no_type_check
def _some_block(target, base, mask, log_r, trained, kept):
    """Tokens of which some may not count, or lack a log-prob."""
    number, total, base_total, low, high, top = i32(0), 0.0, ZERO, TOP, BOTTOM, i32(0)
    for i in range(len(log_r)):
        mark, apart = _apart(target[i], base[i], mask[i])
        x, base_log = where_marked(apart, mark), where_marked(base[i], mark)
        log_r[i] = x
        trained[i] = mark & 1
        kept[i] = mark & 1
        number = i32(number - mark)
        total += f64(x)
        base_total += base_log
        order = bits_in_order(x)
        low = min(low, one_of(mark, order, TOP))
        high = max(high, one_of(mark, order, BOTTOM))
        top = max(top, i32(f32(target[i]).view(i32) & mark))
        top = max(top, i32(f32(base[i]).view(i32) & mark))
    return number, total, base_total, low, high, top


@compiled(fastmath=SUMMED)
@no_type_check
def _whole_block(target, base, log_r):
    """Tokens that all count. The total is finite only if all of them have their log-probs."""
    total, base_total, low, high, top = 0.0, ZERO, TOP, BOTTOM, i32(0)
    for i in range(len(log_r)):
        x = target[i] - base[i]
        log_r[i] = x
        total += f64(x)
        base_total += base[i]
        order = bits_in_order(x)
        low, high = min(low, order), max(high, order)
        top = max(top, f32(target[i]).view(i32))  # a number above 0 is greater than one below as an integer too
        top = max(top, f32(base[i]).view(i32))
    return total, base_total, low, high, top


@compiled()
@no_type_check
def split_block(target, base, mask, log_r, trained, kept):
    """Write the log-ratios of at most BLOCK tokens (0 where one does not count) and their marks, twice: `kept` starts as what is trained.

    Tokens, Σℓ, Σ log base, the least and the greatest ℓ (+inf and −inf of nothing), the greatest log-prob or 0 if none is above.
    """
    if count_bytes(mask) == len(mask):
        total, base_total, low, high, top = _whole_block(target, base, log_r)
        if total - total == 0.0:
            trained[:], kept[:] = 1, 1
            return i32(len(mask)), total, f64(base_total), float_at(low), float_at(high), i32(top).view(f32)
    number, total, base_total, low, high, top = _some_block(target, base, mask, log_r, trained, kept)
    return number, total, f64(base_total), float_at(low), float_at(high), i32(top).view(f32)


@compiled()
@no_type_check
def split_row(target, base, mask, log_r, trained, kept):
    """The same of a row of any length."""
    number, total, base_total, least, greatest, most = 0, 0.0, 0.0, INFINITY, -INFINITY, ZERO
    for start in range(0, len(log_r), BLOCK):
        to = min(start + BLOCK, len(log_r))
        count, part, base_part, low, high, top = split_block(
            target[start:to], base[start:to], mask[start:to], log_r[start:to], trained[start:to], kept[start:to]
        )
        number += count
        total += part
        base_total += base_part
        least, greatest, most = min(least, low), max(greatest, high), max(most, top)
    return number, total, base_total, least, greatest, most


@inlined
@no_type_check
def split(given, part, tokens, rows, totals):
    """Log-ratios and marks of a chunk, and the sums of its rows; the greatest |ℓ| and log-prob."""
    target, base, mask = given
    log_r, _, trained, kept = tokens
    far, most, number = -INFINITY, ZERO, 0
    for r in range(len(rows)):
        low, high = part[r], part[r + 1]
        count, total, base_total, least, greatest, top = split_row(
            target[low:high], base[low:high], mask[low:high], log_r[low:high], trained[low:high], kept[low:high]
        )
        _note_row(rows[r], totals, count, total, base_total, least, greatest)
        number += count
        far, most = max(far, -least, greatest), max(most, top)
    totals.masked += len(mask) if number == len(mask) else count_bytes(mask)
    totals.max_log_prob = max(totals.max_log_prob, f64(most))
    return far, most


@compiled()
@no_type_check
def _note_row(row, totals, number, total, base_total, least, greatest):
    """Take down what a row was split into, and add it to the sums of the batch."""
    row.tokens, row.log_r, row.log_base, row.kept = number, total, base_total, number
    row.least, row.greatest = least, greatest
    totals.tokens += number
    totals.log_r += total
    totals.max_abs_log_r = max(totals.max_abs_log_r, -f64(least), f64(greatest))
    totals.max_log_r = max(totals.max_log_r, f64(greatest))
    totals.max_minus_log_r = max(totals.max_minus_log_r, -f64(least))


@compiled(fastmath=SUMMED)
@no_type_check
def near_block(x, excess, ratio, k3):
    """Σ(r−1)², Σk3, Σk3 reversed, Σ(r−1)ℓ, Σ|ℓ| and Σ(r−1) where every |ℓ| ≤ NEAR; r − 1, r and k3 are written.

    The first and the last run in float64 over the same numbers: a deviation is what is left of their difference.
    """
    square, linear, third, back, weighted, distance = 0.0, 0.0, ZERO, ZERO, ZERO, ZERO
    for i in range(len(x)):
        more, ahead, r, behind = near_parts(x[i])
        square += f64(more) * f64(more)
        linear += f64(more)
        third += ahead
        back += behind
        weighted += more * x[i]
        distance += abs(x[i])
        excess[i], ratio[i], k3[i] = more, r, ahead
    return square, third, back, weighted, distance, linear


@compiled(fastmath=SUMMED)
@no_type_check
def far_block(x, excess, ratio, k3):
    """The same for any |ℓ| ≤ 87."""
    square, linear, third, back, weighted, distance = 0.0, 0.0, ZERO, ZERO, ZERO, ZERO
    for i in range(len(x)):
        more, ahead, r = exponential_parts(x[i])
        square += f64(more) * f64(more)
        linear += f64(more)
        third += ahead
        back += k3_reversed(x[i], more, ahead, r)
        weighted += more * x[i]
        distance += abs(x[i])
        excess[i], ratio[i], k3[i] = more, r, ahead
    return square, third, back, weighted, distance, linear


@compiled(fastmath=SUMMED)
@no_type_check
def _moved_block(base, excess):
    """Σ|p−q| and the greatest |p−q|, from log q and p/q − 1. In one loop with the above, registers would not do."""
    total, peak = ZERO, i32(0)
    for i in range(len(base)):
        moved = abs(exponential_of(between(base[i], LOWEST, HIGHEST)) * excess[i])
        total += moved
        peak = max(peak, f32(moved).view(i32))
    return total, i32(peak).view(f32)


@compiled()
@no_type_check
def is_near(x, far):
    """Whether every |x| ≤ NEAR; `far`: no |x| is greater."""
    return far <= NEAR or greatest_magnitude(x) <= NEAR


@compiled()
@no_type_check
def _measure(x, base, far, excess, ratio, k3, totals):
    """Add the moments of tokens to the sums of a batch, a block at a time; r − 1, r and k3 are written. `far`: no |ℓ| is greater.

    Where a token does not count, ℓ and so r − 1 are 0, and what `base` holds there does not matter. Σ(r − 1) and Σ(r − 1)² of them.
    """
    first = second = 0.0
    for start in range(0, len(x), BLOCK):
        to = min(start + BLOCK, len(x))
        given, out, powers, thirds = x[start:to], excess[start:to], ratio[start:to], k3[start:to]
        if is_near(given, far):
            square, third, back, weighted, distance, linear = near_block(given, out, powers, thirds)
        else:
            square, third, back, weighted, distance, linear = far_block(given, out, powers, thirds)
        moved, peak = _moved_block(base[start:to], out)
        first += linear
        second += square
        totals.k3 += f64(third)
        totals.k3_reverse += f64(back)
        totals.excess_log_r += f64(weighted)
        totals.abs_log_r += f64(distance)
        totals.prob_diff += f64(moved)
        totals.max_prob_diff = max(totals.max_prob_diff, f64(peak))
    totals.excess += first
    totals.excess_squares += second
    return first, second


@compiled()
@no_type_check
def measure_rows(x, base, far, part, out, rows, totals):
    """The moments of a chunk, row by row; where rows are shorter than vectors are worth, all at once."""
    excess, ratio, k3 = out
    if len(x) < SHORT * len(rows):
        _measure(x, base, far, excess, ratio, k3, totals)
        _note_moments(excess, part, rows)
        return
    for r in range(len(rows)):
        low, high = part[r], part[r + 1]
        linear, square = _measure(
            x[low:high], base[low:high], far, excess[low:high], ratio[low:high], k3[low:high], totals
        )
        rows[r].excess, rows[r].excess_squares = linear, square


@compiled(fastmath=SUMMED)
@no_type_check
def _note_moments(excess, part, rows):
    """Take down Σ(r − 1) and Σ(r − 1)² of each row of a chunk."""
    for r in range(len(rows)):
        linear = square = 0.0
        for i in range(part[r], part[r + 1]):
            linear += f64(excess[i])
            square += f64(excess[i]) * f64(excess[i])
        rows[r].excess, rows[r].excess_squares = linear, square


@inlined
@no_type_check
def are_within(rows, lower, upper):
    """Whether the log-ratios of all tokens of these rows lie within bounds."""
    within = True
    for row in rows:
        within &= not (row.greatest > upper or row.least < lower)
    return within


@compiled()
@no_type_check
def positive_tokens(target, base, trained, most):
    """How many trained tokens have a log-prob above 0, beyond rounding, under one policy or the other. `most`: the greatest log-prob."""
    number = i32(0)
    if most <= POSITIVE:
        return number
    for i in range(len(trained)):
        number = i32(number + i32((trained[i] != 0) & ((target[i] > POSITIVE) | (base[i] > POSITIVE))))
    return number
