# pyright: basic
"""Numbers of a block of tokens: sums, extremes, and mean and deviation in a form that can be merged."""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

INFINITY = tl.constexpr(float("inf"))
LARGEST = tl.constexpr(3.4028234663852886e38)  # of float32
MOST = tl.constexpr(1e38)  # weights and what gates measured are reported up to here
LOG_MOST = tl.constexpr(87.49823353377374)
LIMIT = tl.constexpr(20.0)  # log-ratios are held within ± this before they are exponentiated for a metric


@triton.jit
@no_type_check
def nothing():
    """0 in float64, for a sum to start from."""
    return tl.full((), 0.0, tl.float64)


@triton.jit
@no_type_check
def marked_number(marks):
    """How many are marked."""
    return tl.sum(marks.to(tl.int32)).to(tl.float64)


@triton.jit
@no_type_check
def marked_sum(value, marks):
    """The sum where marked, in float64."""
    return tl.sum(tl.where(marks, value.to(tl.float64), 0.0))


@triton.jit
@no_type_check
def marked_greatest(value, marks):
    """The greatest value where marked; −inf where nothing is."""
    return tl.max(tl.where(marks, value.to(tl.float64), -INFINITY))


@triton.jit
@no_type_check
def clamped(value, lower, upper):
    """The value within bounds."""
    return tl.minimum(tl.maximum(value, lower), upper)


@triton.jit
@no_type_check
def as_float32(value):
    """A float64 rounded once; the largest float32 where it lies beyond, never inf."""
    return clamped(value, -LARGEST, LARGEST).to(tl.float32)


@triton.jit
@no_type_check
def ratio_of(log, lowest, highest):
    """e^log of a log-ratio within bounds, in float64: where r − 1 and r − 1 − ℓ need no formula of their own to keep their digits."""
    return tl.exp(clamped(log.to(tl.float64), lowest, highest))


# Two blocks, values 1 2 3 and 6 8:
#     number, mean, squares    3, 2, 2             2, 7, 2
#     difference of the means  5
#     merged                   5, 2 + 5·2/5 = 4, 2 + 2 + 5²·3·2/5 = 34         of 1 2 3 6 8: mean 4, 9 + 4 + 1 + 4 + 16 = 34
@triton.jit
@no_type_check
def merge_described(number, mean, squares, more, its_mean, its_squares):
    """Number, mean and squares around the mean of two sets as those of one."""
    both = tl.maximum(number + more, 1.0)
    apart = its_mean - mean
    return number + more, mean + apart * (more / both), squares + its_squares + apart * apart * (number * (more / both))


@triton.jit
@no_type_check
def describe_marked(value, marks, number, mean, squares):
    """Number, mean and squares around the mean, with those of the marked values merged into them."""
    more = marked_number(marks)
    its_mean = marked_sum(value, marks) / tl.maximum(more, 1.0)
    off = value.to(tl.float64) - its_mean
    return merge_described(number, mean, squares, more, its_mean, marked_sum(off * off, marks))
