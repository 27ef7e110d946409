# pyright: basic
"""What the pass does to the numbers of a chunk, one loop each; every loop is written so that it becomes vector instructions.

Loops read some arrays and write others, never one in place: a compiler that cannot rule out an overlap works number by number.
Sums stand apart from arithmetic. Only they may be reordered (`reassoc`), in float64, where that changes nothing above 1e-15;
arithmetic never is, since the exponential and k3 live from the order they are written in. Extremes go by integers, whose order is
that of the floats and whose maximum needs no rule for NaN.
"""

from __future__ import annotations

import math
from typing import Any, no_type_check

import numba
import numpy as np

f32, f64, i32 = np.float32, np.float64, np.int32

ZERO, ONE, HALF = f32(0), f32(1), f32(0.5)
LOG2_E, SHIFT = f32(1.44269504), f32(12582912.0)  # 1.5 · 2²³: adding it rounds to an integer
LN2_HIGH, LN2_LOW = f32(0.693359375), f32(-2.12194440e-4)  # the first times a small integer is exact
SIGN = i32(0x7FFFFFFF)
BLOCK = 1024


def compiled(**options: Any) -> Any:
    """A decorator: machine code, kept on disk where a folder can be written."""

    def decorate(function: Any) -> Any:
        try:
            return numba.njit(cache=True, error_model="numpy", **options)(function)
        except RuntimeError:  # nowhere to keep it: it is compiled in each process
            return numba.njit(error_model="numpy", **options)(function)

    return decorate


def inlined(function: Any) -> Any:
    """A decorator for parts of the pass, which become one function with their caller: each level would be optimised again."""
    return numba.njit(inline="always", error_model="numpy")(function)


@compiled()
@no_type_check
def bits_in_order(value):
    """A float32 as an integer in the same order."""
    bits = f32(value).view(i32)
    return i32(bits ^ i32(i32(bits >> i32(31)) & SIGN))


@compiled()
@no_type_check
def float_at(order):
    """The float32 that has this place in the order."""
    return i32(order ^ i32(i32(order >> i32(31)) & SIGN)).view(f32)


@compiled()
@no_type_check
def split_ratio(target, base, mask, log_r):
    """log target − log base where a token counts and both are finite, 0 elsewhere."""
    for i in range(len(log_r)):
        apart = target[i] - base[i]
        counts = (mask[i] != 0) & ((apart - apart) == ZERO)
        log_r[i] = apart if counts else ZERO


@compiled()
@no_type_check
def mark_finite(target, base, mask, here):
    """1 where a token counts and both log-probs are finite, 0 elsewhere."""
    for i in range(len(here)):
        apart = target[i] - base[i]
        here[i] = ONE if (mask[i] != 0) & ((apart - apart) == ZERO) else ZERO


@compiled()
@no_type_check
def keep_where(value, here, out):
    """The value where marked, 0 elsewhere, whatever stood there."""
    for i in range(len(out)):
        out[i] = value[i] if here[i] > ZERO else ZERO


@compiled()
@no_type_check
def as_bytes(here, out):
    """An indicator as booleans."""
    for i in range(len(out)):
        out[i] = here[i] > ZERO


@compiled()
@no_type_check
def narrow(inside, marks):
    """Take what is not inside out of an indicator."""
    for i in range(len(marks)):
        marks[i] = marks[i] if inside[i] > ZERO else ZERO


@compiled()
@no_type_check
def all_times(one, two, three, out):
    """The product of three."""
    for i in range(len(out)):
        out[i] = one[i] * two[i] * three[i]


@compiled()
@no_type_check
def times(left, right, out):
    """The product."""
    for i in range(len(out)):
        out[i] = left[i] * right[i]


@compiled()
@no_type_check
def held(value, bound, out):
    """The value within ±bound."""
    for i in range(len(out)):
        v = value[i]
        v = v if v < bound else bound
        out[i] = v if v > -bound else -bound


@compiled()
@no_type_check
def _split(x):
    """k, 2^k, r and e^r − 1 − r for x = k·ln 2 + r, |r| ≤ ln 2 / 2."""
    k = (x * LOG2_E + SHIFT) - SHIFT
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p = f32(1.9875691500e-4)
    p = p * r + f32(1.3981999507e-3)
    p = p * r + f32(8.3334519073e-3)
    p = p * r + f32(4.1665795894e-2)
    p = p * r + f32(1.6666665459e-1)
    p = p * r + f32(5.0000001201e-1)
    p = p * r * r
    scale = i32(i32(i32(k) + i32(127)) << i32(23)).view(f32)
    return k, scale, r, p


@compiled()
@no_type_check
def exponentials(x, excess, k3, ratio):
    """e^x − 1, e^x − 1 − x and e^x, for |x| ≤ 87; near 0 the second is no difference of the first, and keeps its digits."""
    for i in range(len(x)):
        k, scale, r, p = _split(x[i])
        e = scale * (r + p) + (scale - ONE)
        apart = p if k == ZERO else e - x[i]
        excess[i] = e
        k3[i] = apart if apart > ZERO else ZERO
        ratio[i] = scale * (r + p) + scale


@compiled()
@no_type_check
def exponential(x, out):
    """e^x, of what lies below −87 as of −87."""
    for i in range(len(x)):
        v = x[i] if x[i] > f32(-87.0) else f32(-87.0)
        _, scale, r, p = _split(v)
        out[i] = scale * (r + p) + scale


@compiled()
@no_type_check
def bound_between(value, lower, upper, out):
    """The value within bounds."""
    for i in range(len(out)):
        v = value[i] if value[i] > lower else lower
        out[i] = v if v < upper else upper


@compiled()
@no_type_check
def zero_beyond(value, x, lower, upper, out):
    """The value where x lies within bounds, 0 elsewhere."""
    for i in range(len(out)):
        out[i] = value[i] if (x[i] >= lower) & (x[i] <= upper) else ZERO


@compiled()
@no_type_check
def mark_inside(x, lower, upper, out):
    """1 where x lies within bounds, 0 elsewhere."""
    for i in range(len(out)):
        out[i] = ONE if (x[i] >= lower) & (x[i] <= upper) else ZERO


@compiled()
@no_type_check
def k3_reverse(x, excess, k3, ratio, out):
    """e^(−x) − 1 + x, without a second exponential."""
    for i in range(len(out)):
        out[i] = (x[i] * excess[i] - k3[i]) / ratio[i]


@compiled()
@no_type_check
def probability_distance(probability, excess, out):
    """|p − q| for q and p/q − 1."""
    for i in range(len(out)):
        out[i] = abs(probability[i] * excess[i])


# --- the divergences, by the code of program.py -----------------------------------------------------------------------


@compiled()
@no_type_check
def scaled(x, factor, out):
    """x times a number."""
    for i in range(len(out)):
        out[i] = x[i] * factor


@compiled()
@no_type_check
def scaled_square(x, factor, out):
    """x² times a number."""
    for i in range(len(out)):
        out[i] = x[i] * x[i] * factor


@compiled()
@no_type_check
def magnitude(x, out):
    """|x|."""
    for i in range(len(out)):
        out[i] = abs(x[i])


@compiled()
@no_type_check
def divergence(metric, x, here, one, two, three, out):
    """A divergence of each token into `out`, by its code; the numbered arrays are scratch. mult_prob_error is 0 outside `here`."""
    if metric < 3:  # ratio and k1, forward and reverse
        scaled(x, -ONE if metric == 1 else ONE, out)
    elif metric < 5:  # k2, second moment
        scaled_square(x, HALF if metric == 3 else ONE, out)
    elif metric == 5:  # abs log ratio
        magnitude(x, out)
    else:
        _exponential_divergence(metric, x, here, one, two, three, out)


@compiled()
@no_type_check
def _exponential_divergence(metric, x, here, one, two, three, out):
    if metric == 8 or metric == 10:  # k3 max, mult prob error
        magnitude(x, two)
    else:  # k3 reverse; k3 forward, ratio deviation
        scaled(x, -ONE if metric == 7 else ONE, two)
    exponentials(two, one, out, three)
    if metric == 9:
        magnitude(one, out)
    elif metric == 10:
        times(three, here, out)


# --- sums and extremes ------------------------------------------------------------------------------------------------


@compiled(fastmath={"reassoc"})
@no_type_check
def sum_of_chunk(x):
    """The sum, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(x[i])
    return total


@compiled()
@no_type_check
def sum_of_bytes(x):
    """How many are not 0."""
    total = i32(0)
    for i in range(len(x)):
        total += i32(x[i] != 0)
    return total


@compiled()
@no_type_check
def extremes(x, here):
    """The least and the greatest value where marked; +inf and −inf where nothing is."""
    low, top = bits_in_order(math.inf), bits_in_order(-math.inf)
    for i in range(len(x)):
        top = max(top, bits_in_order(x[i] if here[i] > ZERO else f32(-math.inf)))
    for i in range(len(x)):
        low = min(low, bits_in_order(x[i] if here[i] > ZERO else f32(math.inf)))
    return float_at(low), float_at(top)


@compiled(fastmath={"reassoc"})
@no_type_check
def row_totals(here, x, base):
    """Three sums, in float64."""
    number = first = second = 0.0
    for i in range(len(x)):
        number += f64(here[i])
        first += f64(x[i])
        second += f64(base[i])
    return number, first, second


@compiled(fastmath={"reassoc"})
@no_type_check
def _drift_block(x, excess, k3, reverse):
    """Sums of the moments of at most BLOCK tokens, in float32: 16 or more partial sums, a few dozen numbers in each."""
    linear = square = weighted = third = back = apart = ZERO
    for i in range(len(x)):
        linear += excess[i]
        square += excess[i] * excess[i]
        weighted += excess[i] * x[i]
        third += k3[i]
        back += reverse[i]
        apart += abs(x[i])
    return linear, square, weighted, third, back, apart


@compiled()
@no_type_check
def drift_sums(x, excess, k3, reverse, sums):
    """Add Σ(r − 1), Σ(r − 1)², Σk3, Σk3 reversed, Σ(r − 1)·log r and Σ|log r| to sums[3:9]."""
    for start in range(0, len(x), BLOCK):
        to = min(start + BLOCK, len(x))
        found = _drift_block(x[start:to], excess[start:to], k3[start:to], reverse[start:to])
        sums[3] += f64(found[0])
        sums[4] += f64(found[1])
        sums[5] += f64(found[3])
        sums[6] += f64(found[4])
        sums[7] += f64(found[2])
        sums[8] += f64(found[5])


@compiled(fastmath={"reassoc"})
@no_type_check
def weight_sums(x):
    """Σw and Σw², in float64, where no square overflows."""
    first = second = 0.0
    for i in range(len(x)):
        first += f64(x[i])
        second += f64(x[i]) * f64(x[i])
    return first, second


@compiled()
@no_type_check
def last_counted(mask):
    """One past the last token that counts: what comes after is padding."""
    n = len(mask)
    while n > 0 and mask[n - 1] == 0:
        n -= 1
    return n


@compiled(fastmath={"reassoc"})
@no_type_check
def product_sum(x, y):
    """The sum of products, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(x[i]) * f64(y[i])
    return total


@compiled(fastmath={"reassoc"})
@no_type_check
def square_sum(x, here):
    """The sum of the squares of marked values, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(x[i]) * f64(x[i]) * f64(here[i])
    return total


@compiled(fastmath={"reassoc"})
@no_type_check
def sum_of_magnitudes(x):
    """The sum of absolute values, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(abs(x[i]))
    return total


@compiled()
@no_type_check
def count_above(x, bound):
    """How many values lie above a bound."""
    number = i32(0)
    for i in range(len(x)):
        number += i32(x[i] > bound)
    return number


@compiled()
@no_type_check
def count_marked_above(x, here, bound):
    """How many marked values lie above a bound."""
    number = i32(0)
    for i in range(len(x)):
        number += i32((here[i] > ZERO) & (x[i] > bound))
    return number


@compiled()
@no_type_check
def count_marked_below(x, here, bound):
    """How many marked values lie below a bound."""
    number = i32(0)
    for i in range(len(x)):
        number += i32((here[i] > ZERO) & (x[i] < bound))
    return number


@compiled()
@no_type_check
def count_positive(a, b, here, bound):
    """How many marked tokens have a log-prob above a bound under one policy or the other."""
    number = i32(0)
    for i in range(len(here)):
        number += i32((here[i] > ZERO) & ((a[i] > bound) | (b[i] > bound)))
    return number


@compiled()
@no_type_check
def greatest_magnitude(x):
    """The greatest |x|, of numbers that are 0 where they do not count."""
    top = i32(0)
    for i in range(len(x)):
        top = max(top, i32(f32(x[i]).view(i32) & SIGN))
    return i32(top).view(f32)
