# pyright: basic
"""The weight of each token of a chunk: a ratio at some level, held within bounds or zeroed outside them, and the sums of weights."""

from __future__ import annotations

import math
from typing import no_type_check

import numpy as np

from trimtab.core.fast.fits import GEOMETRIC, ON_GATHERED, ON_TOKENS, ONE, SEQUENCE, TOKEN
from trimtab.core.fast.gate import HELD, POWERS, RATIOS
from trimtab.core.fast.loops import (
    BLOCK,
    BOTTOM,
    INFINITY,
    LARGEST,
    SUMMED,
    TOP,
    ZERO,
    between,
    bits_in_order,
    compiled,
    exponential,
    exponential_of,
    f32,
    f64,
    float_at,
    gather,
    i32,
    inlined,
    one_of,
    where_marked,
)
from trimtab.core.fast.ratio import are_within
from trimtab.core.sums import MOST

LOG_MOST = math.log(MOST)
SMALL = 1e-3
"""A mean square of ratios below which their sums are not taken from those of r − 1, which hold no digits of so small an r."""
NEUTRAL, LARGEST_LOG = f32(1.0), f32(88.7)


@inlined
@no_type_check
def weigh(weight, chunk, out, observes, sums):
    """Write the weight of each token and, where asked for, add up those of the kept ones. False: one is too large to be reported."""
    x, far, _, trained, kept, _, _, scratch = chunk
    rows, _, totals, _ = sums
    total, number = totals[0], 0.0
    for r in range(len(rows)):
        number += rows[r].kept
    total.kept += number
    scope, bites, log = kept if weight.of_kept else trained, weight.limit_at == ON_TOKENS and far > weight.limit, x
    if bites:
        log = scratch[HELD, : len(x)]
        for i in range(len(x)):
            log[i] = between(x[i], -weight.limit, weight.limit)
    if weight.level != TOKEN:
        return _weigh_rows(weight, log, scope, bites, chunk, out, sums)
    _weigh_tokens(weight, log, bites, number, chunk, out, observes, total)
    if observes:
        _note_touched(weight, log, scope, rows, total)
    return True


@inlined
@no_type_check
def _weigh_tokens(weight, log, bites, number, chunk, out, observes, total):
    """A weight for each token by its own ratio. `number`: how many are kept."""
    x, _, _, _, kept, acting, _, scratch = chunk
    if number == 0:
        out[:] = ZERO
    elif not observes:
        _bare_weights(log, kept, acting, weight, out)
    else:
        ratio = scratch[RATIOS, : len(x)]
        if bites:
            ratio = scratch[POWERS, : len(x)]
            exponential(log, ratio)
        first, second, least, greatest = _bound_ratios(ratio, log, kept, acting, weight, out)
        _note_weights(total, first, second, least, greatest, number)


@inlined
@no_type_check
def _note_touched(weight, log, scope, rows, total):
    """Add how many tokens are weighed, and how many of them lie beyond a bound."""
    for row in rows:
        total.weighed += row.kept if weight.of_kept else row.tokens
    if not are_within(rows, weight.log_lower, weight.log_upper):
        above, below = _count_beyond(log, scope, weight.log_lower, weight.log_upper)
        total.above += above
        total.below += below


@compiled()
@no_type_check
def _bare_weights(log, kept, acting, weight, out):
    """The weights of tokens from their log-ratios, where nobody asks for their sums."""
    lower, upper, log_lower, log_upper = weight.lower, weight.upper, weight.log_lower, weight.log_upper
    if weight.drops:
        for i in range(len(out)):
            inside = -i32((log[i] >= log_lower) & (log[i] <= log_upper))
            out[i] = where_marked(exponential_of(log[i]), inside & -i32(kept[i] & acting[i]))
    else:
        for i in range(len(out)):
            out[i] = where_marked(between(exponential_of(log[i]), lower, upper), -i32(kept[i] & acting[i]))


@compiled(fastmath=SUMMED)
@no_type_check
def _bound_ratios(ratio, log, kept, acting, weight, out):
    """Ratios to weights, held at the bounds or 0 beyond them; Σw, Σw², the least and the greatest w of the kept tokens."""
    first, second, low, high = 0.0, 0.0, TOP, i32(0)  # no weight is negative: its bits are in order
    log_lower, log_upper = weight.log_lower, weight.log_upper
    lower, upper = (ZERO, INFINITY) if weight.drops else (weight.lower, weight.upper)
    if not weight.drops:
        log_lower, log_upper = -INFINITY, INFINITY
    for i in range(len(out)):
        is_kept = -i32(kept[i])
        inside = -i32((log[i] >= log_lower) & (log[i] <= log_upper)) & -i32(acting[i])
        bits = i32(f32(between(ratio[i], lower, upper)).view(i32) & inside & is_kept)
        value = bits.view(f32)
        out[i] = value
        first += f64(value)
        second += f64(value) * f64(value)
        high, low = max(high, bits), min(low, i32(bits | (TOP & ~is_kept)))
    return first, second, float_at(low), float_at(high)


@compiled()
@no_type_check
def _count_beyond(log, scope, lower, upper):
    """How many of the tokens in scope lie above the upper bound, and below the lower one."""
    above, below = i32(0), i32(0)
    for i in range(len(log)):
        counts = i32(scope[i])
        above = i32(above + (counts & i32(log[i] > upper)))
        below = i32(below + (counts & i32(log[i] < lower)))
    return above, below


@inlined
@no_type_check
def _weigh_rows(weight, log, scope, bites, chunk, out, sums):
    """One weight for each row; without a weight, 1."""
    _, _, part, _, kept, acting, _, _ = chunk
    rows, _, totals, _ = sums
    total = totals[0]
    for r in range(len(rows)):
        low, high, value, row = part[r], part[r + 1], NEUTRAL, rows[r]
        if weight.level != ONE:
            number, log_r = row.tokens, row.log_r
            if bites or (weight.of_kept and row.kept < number):
                number, log_r, _, _ = gather(log[low:high], scope[low:high])
            raw, value = row_weight(weight, gathered(weight.level, log_r, number))
            if value > MOST:
                return False
            row.log_weight = raw
            total.weighed += number
            total.above += number if raw > weight.log_upper else 0.0
            total.below += number if raw < weight.log_lower else 0.0
        acts = f64(_fill(kept[low:high], acting[low:high], value, out[low:high]))
        row.weight = value if acts > 0 else ZERO
        least = value if acts == row.kept else ZERO
        _note_weights(total, acts * f64(value), acts * f64(value) * f64(value), least, f32(row.weight), row.kept)
    return True


@inlined
@no_type_check
def gathered(level, total, number):
    """The log-ratio of a row at the level of a weight; NaN: it has no branch here."""
    if level == GEOMETRIC:
        return f32(total / max(number, 1.0))
    if level == SEQUENCE:
        return f32(total)
    return f32(0.0 if level in (ONE, TOKEN) else math.nan)


@inlined
@no_type_check
def row_weight(weight, log):
    """The log-ratio of a row within its limit, and the weight that follows."""
    if weight.limit_at == ON_GATHERED:
        log = between(log, -weight.limit, weight.limit)
    value = f32(np.exp(f64(log))) if log < LARGEST_LOG else LARGEST
    if weight.drops == 0:
        value = between(value, weight.lower, weight.upper)
    elif log < weight.log_lower or log > weight.log_upper:
        value = ZERO
    return log, value


@compiled()
@no_type_check
def _fill(kept, acting, value, out):
    """One value on the tokens that are kept and act, 0 elsewhere; how many there are."""
    number = i32(0)
    for i in range(len(out)):
        mark = -i32(kept[i] & acting[i])
        out[i] = where_marked(value, mark)
        number = i32(number - mark)
    return number


@compiled()
@no_type_check
def _note_weights(total, first, second, least, greatest, kept):
    total.weight += first
    total.weight_squares += second
    if kept > 0:
        total.max_weight = max(total.max_weight, f64(greatest))
        total.max_minus_weight = max(total.max_minus_weight, -f64(least))


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
def raw_token_weights(log_r, kept, offsets, rows, limit):
    """Σw, Σw² and the logarithms of the least and the greatest w of the kept tokens: their ratio within a limit, before bounds.

    Where a row is kept whole and holds no limit, its moments say it: r² = 1 + 2(r − 1) + (r − 1)².
    """
    total, squares, low, high = 0.0, 0.0, f64(INFINITY), -f64(INFINITY)
    for r in range(len(rows)):
        row = rows[r]
        square = row.tokens + 2.0 * row.excess + row.excess_squares
        is_free = -limit <= row.least and row.greatest <= limit and square > SMALL * row.tokens
        if row.kept == row.tokens > 0 and is_free:
            total += row.tokens + row.excess
            squares += square
            low, high = min(low, row.least), max(high, row.greatest)
        elif row.kept > 0:
            for start in range(offsets[r], offsets[r + 1], BLOCK):
                to = min(start + BLOCK, offsets[r + 1])
                first, second, least, greatest = _raw_block(log_r[start:to], kept[start:to], limit)
                total += first
                squares += second
                low, high = min(low, f64(float_at(least))), max(high, f64(float_at(greatest)))
    return total, squares, low, high


@compiled()
@no_type_check
def raw_row_weights(rows):
    """The same where a row has one weight for all its tokens."""
    total, squares, low, high = 0.0, 0.0, f64(INFINITY), -f64(INFINITY)
    for row in rows:
        if row.kept > 0:
            log = min(row.log_weight, LOG_MOST)
            weight = math.exp(log)
            total += row.kept * weight
            squares += row.kept * weight * weight
            low, high = min(low, log), max(high, log)
    return total, squares, low, high
