# pyright: basic
"""What is worked out for every token, whatever a rule asks for: its log-ratio, its exponentials, and the sums of both."""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.exponential import (
    HIGHEST,
    LOWEST,
    NEAR,
    exponential_of,
    exponential_parts,
    k3_reversed,
    near_parts,
)
from trimtab.core.fast.machine import (
    BLOCK,
    BOTTOM,
    INFINITY,
    SUMMED,
    TOP,
    ZERO,
    between,
    bits_in_order,
    compiled,
    f32,
    f64,
    float_at,
    i32,
    one_of,
    where_marked,
)
from trimtab.core.fast.totals import greatest_magnitude

POSITIVE = f32(0.01)
_STRIDE = 512


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
        x, own = where_marked(apart, mark), where_marked(base[i], mark)
        log_r[i] = x
        trained[i] = mark & 1
        kept[i] = mark & 1
        number = i32(number - mark)
        total += f64(x)
        base_total += own
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

    Tokens, Σ log r, Σ log base, the least and the greatest log r (+inf and −inf of nothing), the greatest log-prob or 0 if none is above.
    """
    if count_bytes(mask) == len(mask):
        whole = _whole_block(target, base, log_r)
        if whole[0] - whole[0] == 0.0:
            trained[:], kept[:] = 1, 1
            ends = float_at(whole[2]), float_at(whole[3]), i32(whole[4]).view(f32)
            return i32(len(mask)), whole[0], f64(whole[1]), ends[0], ends[1], ends[2]
    some = _some_block(target, base, mask, log_r, trained, kept)
    ends = float_at(some[3]), float_at(some[4]), i32(some[5]).view(f32)
    return some[0], some[1], f64(some[2]), ends[0], ends[1], ends[2]


@compiled()
@no_type_check
def split_row(target, base, mask, log_r, trained, kept):
    """The same of a row of any length."""
    number, total, base_total, low, high, top = 0, 0.0, 0.0, INFINITY, -INFINITY, ZERO
    for start in range(0, len(log_r), BLOCK):
        to = min(start + BLOCK, len(log_r))
        out = log_r[start:to], trained[start:to], kept[start:to]
        found = split_block(target[start:to], base[start:to], mask[start:to], out[0], out[1], out[2])
        number += found[0]
        total += found[1]
        base_total += found[2]
        low, high, top = min(low, found[3]), max(high, found[4]), max(top, found[5])
    return number, total, base_total, low, high, top


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
def measure_block(x, base, near, excess, ratio, k3, sums, tops):
    """Add the moments of at most BLOCK tokens to sums[3:10] and tops[3]; r − 1, r and k3 are written. Σ(r−1)², Σk3 and Σ(r−1).

    `near`: every |x| ≤ NEAR. Where a token does not count, x and so r − 1 are 0, and what `base` holds there does not matter.
    """
    found = near_block(x, excess, ratio, k3) if near else far_block(x, excess, ratio, k3)
    total, peak = _moved_block(base, excess)
    square, third = found[0], f64(found[1])
    sums[3] += found[5]
    sums[4] += square
    sums[5] += third
    sums[6] += f64(found[2])
    sums[7] += f64(found[3])
    sums[8] += f64(found[4])
    sums[9] += f64(total)
    tops[3] = max(tops[3], f64(peak))
    return square, third, found[5]


@compiled()
@no_type_check
def measure_tokens(x, base, far, scratch, sums, tops):
    """The moments of a row, or of many, whose ratios nobody reads. `scratch`: three blocks. Σ(r−1)², Σk3 and Σ(r−1)."""
    square = third = linear = 0.0
    for start in range(0, len(x), BLOCK):
        n = min(BLOCK, len(x) - start)
        room = scratch[:n], scratch[BLOCK : BLOCK + n], scratch[2 * BLOCK : 2 * BLOCK + n]
        here = x[start : start + n], base[start : start + n]
        near = is_near(here[0], far)
        found = measure_block(here[0], here[1], near, room[0], room[1], room[2], sums, tops)
        square += found[0]
        third += found[1]
        linear += found[2]
    return square, third, linear


@compiled()
@no_type_check
def observe_rows(log_r, target, base, trained, offsets, scratch, rows, sums, tops):
    """The moments of a batch whose log-ratios and extremes (tops[0] and tops[6]) are known, row by row; what each row adds stays in it."""
    far = f32(tops[0])
    for row in range(len(rows)):
        start = offsets[row]
        stop = start + last_counted(trained[start : offsets[row + 1]])
        added = measure_tokens(log_r[start:stop], base[start:stop], far, scratch, sums, tops)
        rows[row, 8], rows[row, 9], rows[row, 10] = added
    sums[10] += positive_tokens(target, base, trained, tops[6])


@compiled()
@no_type_check
def observe_tokens(log_r, target, base, trained, scratch, sums, tops):
    """The same of all rows at once, where they are short."""
    measure_tokens(log_r, base, f32(tops[0]), scratch, sums, tops)
    sums[10] += positive_tokens(target, base, trained, tops[6])


@compiled()
@no_type_check
def positive_tokens(target, base, trained, certain):
    """How many trained tokens have a log-prob above 0, beyond rounding, under one policy or the other.

    `certain`: the greatest of them, which may rule it out.
    """
    number = i32(0)
    if certain <= POSITIVE:
        return number
    for i in range(len(trained)):
        number = i32(number + i32((trained[i] != 0) & ((target[i] > POSITIVE) | (base[i] > POSITIVE))))
    return number


@compiled()
@no_type_check
def count_bytes(x):
    """How many are not 0."""
    total = i32(0)
    for i in range(len(x)):
        total = i32(total + i32(x[i] != 0))
    return total


@compiled()
@no_type_check
def last_counted(mask):
    """One past the last token that counts: what comes after is padding."""
    n = len(mask)
    while n >= _STRIDE and count_bytes(mask[n - _STRIDE : n]) == 0:
        n -= _STRIDE
    while n > 0 and mask[n - 1] == 0:
        n -= 1
    return n
