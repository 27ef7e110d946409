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
def _split_block(target, base, mask, log_r, trained, kept):
    number, total, base_total, low, high, top = i32(0), 0.0, ZERO, TOP, BOTTOM, BOTTOM
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
        surer = target[i] if target[i] > base[i] else base[i]
        top = max(top, one_of(mark, bits_in_order(surer), BOTTOM))
    return number, total, base_total, low, high, top


@compiled()
@no_type_check
def split_row(target, base, mask, log_r, trained, kept):
    """Write the log-ratio of a row (0 where a token does not count) and its marks, twice: `kept` starts as what is trained.

    Tokens, Σ log r, Σ log base, the least and the greatest log r, the greatest log-prob; extremes of nothing are +inf and −inf.
    """
    number, total, base_total, low, high, top = 0, 0.0, 0.0, INFINITY, -INFINITY, -INFINITY
    for start in range(0, len(log_r), BLOCK):
        to = min(start + BLOCK, len(log_r))
        out = log_r[start:to], trained[start:to], kept[start:to]
        found = _split_block(target[start:to], base[start:to], mask[start:to], out[0], out[1], out[2])
        number += found[0]
        total += found[1]
        base_total += f64(found[2])
        low, high, top = min(low, float_at(found[3])), max(high, float_at(found[4])), max(top, float_at(found[5]))
    return number, total, base_total, low, high, top


@compiled(fastmath=SUMMED)
@no_type_check
def near_block(x, excess, ratio, k3):
    """Σ(r−1)², Σk3, Σk3 reversed, Σ(r−1)ℓ and Σ|ℓ| where every |ℓ| ≤ NEAR; r − 1, r and k3 are written."""
    square = third = back = weighted = distance = ZERO
    for i in range(len(x)):
        more, ahead, r, behind = near_parts(x[i])
        square += more * more
        third += ahead
        back += behind
        weighted += more * x[i]
        distance += abs(x[i])
        excess[i], ratio[i], k3[i] = more, r, ahead
    return square, third, back, weighted, distance


@compiled(fastmath=SUMMED)
@no_type_check
def far_block(x, excess, ratio, k3):
    """The same for any |ℓ| ≤ 87."""
    square = third = back = weighted = distance = ZERO
    for i in range(len(x)):
        more, ahead, r = exponential_parts(x[i])
        square += more * more
        third += ahead
        back += k3_reversed(x[i], more, ahead, r)
        weighted += more * x[i]
        distance += abs(x[i])
        excess[i], ratio[i], k3[i] = more, r, ahead
    return square, third, back, weighted, distance


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
def measure_block(x, base, far, excess, ratio, k3, sums, tops):
    """Add the moments of at most BLOCK tokens to sums[4:10] and tops[3]; r − 1, r and k3 are written. Σ(r−1)² and Σk3.

    `far`: no |x| is greater. Where a token does not count, x and so r − 1 are 0, and what `base` holds there does not matter.
    """
    near = far <= NEAR or greatest_magnitude(x) <= NEAR
    found = near_block(x, excess, ratio, k3) if near else far_block(x, excess, ratio, k3)
    total, peak = _moved_block(base, excess)
    square, third = f64(found[0]), f64(found[1])
    sums[4] += square
    sums[5] += third
    sums[6] += f64(found[2])
    sums[7] += f64(found[3])
    sums[8] += f64(found[4])
    sums[9] += f64(total)
    tops[3] = max(tops[3], f64(peak))
    return square, third


@compiled()
@no_type_check
def measure_tokens(x, base, far, scratch, sums, tops):
    """The moments of a row, or of many, whose ratios nobody reads. `scratch`: three blocks. Σ(r−1)² and Σk3."""
    square = third = 0.0
    for start in range(0, len(x), BLOCK):
        n = min(BLOCK, len(x) - start)
        room = scratch[:n], scratch[BLOCK : BLOCK + n], scratch[2 * BLOCK : 2 * BLOCK + n]
        here = x[start : start + n], base[start : start + n]
        found = measure_block(here[0], here[1], far, room[0], room[1], room[2], sums, tops)
        square += found[0]
        third += found[1]
    return square, third


@compiled()
@no_type_check
def observe_rows(log_r, target, base, trained, offsets, scratch, rows, sums, tops):
    """The moments of a batch whose log-ratios and extremes (tops[0] and tops[6]) are known, row by row; what each row adds stays in it."""
    far = f32(tops[0])
    for row in range(len(rows)):
        start = offsets[row]
        stop = start + last_counted(trained[start : offsets[row + 1]])
        rows[row, 8], rows[row, 9] = measure_tokens(log_r[start:stop], base[start:stop], far, scratch, sums, tops)
    sums[3] = sums[2] + sums[5]
    sums[10] += positive_tokens(target, base, trained, tops[6])


@compiled()
@no_type_check
def observe_tokens(log_r, target, base, trained, scratch, sums, tops):
    """The same of all rows at once, where they are short."""
    measure_tokens(log_r, base, f32(tops[0]), scratch, sums, tops)
    sums[3] = sums[2] + sums[5]
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
