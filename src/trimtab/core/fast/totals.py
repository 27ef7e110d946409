# pyright: basic
"""Sums, counts and extremes of a chunk, one loop each; sums run in float64."""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.machine import (
    BOTTOM,
    SIGN,
    SUMMED,
    TOP,
    ZERO,
    bits_in_order,
    compiled,
    f32,
    f64,
    float_at,
    i32,
    one_of,
)


@compiled(fastmath=SUMMED)
@no_type_check
def sum_of_chunk(x):
    """The sum, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(x[i])
    return total


@compiled(fastmath=SUMMED)
@no_type_check
def sum_of_squares(x):
    """The sum of squares, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(x[i]) * f64(x[i])
    return total


@compiled(fastmath=SUMMED)
@no_type_check
def product_sum(x, y):
    """The sum of products, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(x[i]) * f64(y[i])
    return total


@compiled(fastmath=SUMMED)
@no_type_check
def square_sum(x, here):
    """The sum of the squares of marked values, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(x[i]) * f64(x[i]) * f64(here[i])
    return total


@compiled(fastmath=SUMMED)
@no_type_check
def sum_of_magnitudes(x):
    """The sum of absolute values, in float64."""
    total = 0.0
    for i in range(len(x)):
        total += f64(abs(x[i]))
    return total


@compiled(fastmath=SUMMED)
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
def count_outside(x, here, lower, upper):
    """How many marked values lie above the upper bound, and below the lower one."""
    above, below = i32(0), i32(0)
    for i in range(len(x)):
        above = i32(above + i32((here[i] > ZERO) & (x[i] > upper)))
        below = i32(below + i32((here[i] > ZERO) & (x[i] < lower)))
    return above, below


@compiled()
@no_type_check
def extremes(x, here):
    """The least and the greatest value where marked; +inf and −inf where nothing is."""
    low, high = TOP, BOTTOM
    for i in range(len(x)):
        mark, order = -i32(here[i] > ZERO), bits_in_order(x[i])
        low = min(low, one_of(mark, order, TOP))
        high = max(high, one_of(mark, order, BOTTOM))
    return float_at(low), float_at(high)


@compiled()
@no_type_check
def greatest_magnitude(x):
    """The greatest |x|, of numbers that are 0 where they do not count."""
    top = i32(0)
    for i in range(len(x)):
        top = max(top, i32(f32(x[i]).view(i32) & SIGN))
    return i32(top).view(f32)
