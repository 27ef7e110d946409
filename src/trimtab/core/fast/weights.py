# pyright: basic
"""The weight of tokens by their own ratio, in place: the ratios of a block become weights, and their sums are found on the way. And the
sums of weights before their bounds."""

from __future__ import annotations

import math
from typing import no_type_check

from trimtab.core.fast.exponential import exponential_of
from trimtab.core.fast.fold import LOG_MOST
from trimtab.core.fast.machine import (
    BLOCK,
    BOTTOM,
    INFINITY,
    SUMMED,
    TOP,
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

SMALL = 1e-3
"""A mean square of ratios below which their sums are not taken from those of r − 1, which hold no digits of so small an r."""


@compiled(fastmath=SUMMED)
@no_type_check
def _truncate_block(weight, trained, lower, upper):
    linear = square = 0.0
    low, high = TOP, i32(0)  # no weight is negative: its bits are in order
    for i in range(len(weight)):
        mark = -i32(trained[i])
        value = between(weight[i], lower, upper)
        bits = i32(f32(value).view(i32) & mark)
        own = bits.view(f32)
        weight[i] = own
        linear += f64(own)
        square += f64(own) * f64(own)
        high = max(high, bits)
        low = min(low, i32(bits | (TOP & ~mark)))
    return linear, square, low, high


@compiled(fastmath=SUMMED)
@no_type_check
def _drop_block(weight, log_r, trained, lower, upper):
    linear = square = 0.0
    low, high = TOP, i32(0)
    for i in range(len(weight)):
        mark = -i32(trained[i])
        inside = -i32((log_r[i] >= lower) & (log_r[i] <= upper))
        value = where_marked(weight[i], inside)
        bits = i32(f32(value).view(i32) & mark)
        own = bits.view(f32)
        weight[i] = own
        linear += f64(own)
        square += f64(own) * f64(own)
        high = max(high, bits)
        low = min(low, i32(bits | (TOP & ~mark)))
    return linear, square, low, high


@compiled()
@no_type_check
def weigh_tokens(weight, log_r, trained, drops, limits, sums, tops):
    """Ratios to weights of the trained tokens: held at the bounds or, where `drops`, 0 beyond them; their sums and extremes added.

    `limits`: bounds, and their logarithms. sums[12:14]: Σw and Σw².
    """
    for start in range(0, len(weight), BLOCK):
        to = min(start + BLOCK, len(weight))
        if drops:
            found = _drop_block(weight[start:to], log_r[start:to], trained[start:to], limits[2], limits[3])
        else:
            found = _truncate_block(weight[start:to], trained[start:to], limits[0], limits[1])
        sums[12] += found[0]
        sums[13] += found[1]
        tops[4] = max(tops[4], f64(float_at(found[3])))
        tops[5] = max(tops[5], -f64(float_at(found[2])))


@compiled()
@no_type_check
def bare_weights(log_r, kept, drops, limits, out):
    """The same weights from the log-ratios, where nobody asks for their sums."""
    if drops:
        for i in range(len(out)):
            inside = -i32((log_r[i] >= limits[2]) & (log_r[i] <= limits[3]))
            out[i] = where_marked(exponential_of(log_r[i]), inside & -i32(kept[i]))
    else:
        lower, upper = limits[0], limits[1]
        for i in range(len(out)):
            out[i] = where_marked(between(exponential_of(log_r[i]), lower, upper), -i32(kept[i]))


@compiled()
@no_type_check
def fill_marked(trained, value, out):
    """One value on the trained tokens, 0 elsewhere."""
    for i in range(len(out)):
        out[i] = where_marked(value, -i32(trained[i]))


@compiled()
@no_type_check
def count_beyond(x, trained, lower, upper):
    """How many trained values lie above the upper bound, and below the lower one."""
    above, below = i32(0), i32(0)
    for i in range(len(x)):
        above = i32(above + i32((trained[i] != 0) & (x[i] > upper)))
        below = i32(below + i32((trained[i] != 0) & (x[i] < lower)))
    return above, below


@compiled()
@no_type_check
def take_out(x, lower, upper, kept):
    """Take the tokens outside of bounds out of what is kept."""
    for i in range(len(kept)):
        kept[i] = kept[i] & i32((x[i] >= lower) & (x[i] <= upper))


@compiled(fastmath=SUMMED)
@no_type_check
def _raw_block(log_r, kept, limit):
    linear = square = 0.0
    low, high = TOP, BOTTOM
    for i in range(len(log_r)):
        mark = -i32(kept[i])
        x = between(log_r[i], -limit, limit)
        ratio = where_marked(exponential_of(x), mark)
        linear += f64(ratio)
        square += f64(ratio) * f64(ratio)
        order = bits_in_order(x)
        low = min(low, one_of(mark, order, TOP))
        high = max(high, one_of(mark, order, BOTTOM))
    return linear, square, low, high


@compiled()
@no_type_check
def raw_token_weights(log_r, kept, limit, out):
    """Add Σw and Σw² of kept tokens to `out`, and join the logarithms of their least and greatest w to it: their ratio within a
    limit, before bounds."""
    for start in range(0, len(log_r), BLOCK):
        to = min(start + BLOCK, len(log_r))
        found = _raw_block(log_r[start:to], kept[start:to], limit)
        out[0] += found[0]
        out[1] += found[1]
        out[2] = min(out[2], f64(float_at(found[2])))
        out[3] = max(out[3], f64(float_at(found[3])))


@compiled()
@no_type_check
def raw_weights_by_rows(log_r, kept, offsets, rows, out):
    """The same where no token reaches a limit and each row has its moments: a look at tokens only where some of a row were kept."""
    for row in range(len(rows)):
        number = rows[row, 0]
        square = number + 2.0 * rows[row, 10] + rows[row, 8]  # r² = 1 + 2(r − 1) + (r − 1)²
        if rows[row, 3] == number > 0 and square > SMALL * number:
            out[0] += number + rows[row, 10]
            out[1] += square
            out[2], out[3] = min(out[2], rows[row, 5]), max(out[3], rows[row, 6])
        elif rows[row, 3] > 0:
            low, high = offsets[row], offsets[row + 1]
            raw_token_weights(log_r[low:high], kept[low:high], INFINITY, out)


@compiled()
@no_type_check
def raw_row_weights(rows, out):
    """The same where a row has one weight for all its tokens."""
    for row in range(len(rows)):
        if rows[row, 3] > 0:
            log = min(rows[row, 7], LOG_MOST)
            weight = math.exp(log)
            out[0] += rows[row, 3] * weight
            out[1] += rows[row, 3] * weight * weight
            out[2], out[3] = min(out[2], log), max(out[3], log)
