# pyright: basic
"""How a loop becomes machine code, numbers as the processor sees them, and e^x in straight-line float32 arithmetic.

A loop becomes vector instructions only where the compiler sees no branch in it, so choices are made with bits: a token is marked by a
word of ones or of zeros. Only sums may be reordered (`SUMMED`): float64 ones change by nothing above 1e-15, float32 ones run over at
most BLOCK tokens. A product and a sum may be rounded once (`CONTRACTED`) in the exponential, which no decision depends on. Extremes
go by integers, whose order is that of the floats and whose maximum needs no rule for NaN.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, no_type_check

import numba
import numba.core.event
import numba.core.options
import numpy as np

f32, f64, i32 = np.float32, np.float64, np.int32

ZERO, ONE, HALF = f32(0), f32(1), f32(0.5)
INFINITY, LARGEST = f32(np.inf), np.finfo(np.float32).max
SIGN = i32(0x7FFFFFFF)
TOP, BOTTOM = (
    i32(0x7F800000),
    i32(-0x7F800001),
)  # +inf and −inf in order; the ends of int32 would be folded into branches
BLOCK = 1024
"""Tokens whose float32 sum keeps its digits: 16 or more partial sums, a few dozen numbers in each."""
SUMMED, CONTRACTED = {"reassoc", "contract"}, {"contract"}
FOLDER = tuple((each.name, each.stat().st_mtime_ns) for each in sorted(Path(__file__).parent.glob("*.py")))
"""The files that compiled code is made of, and when each was written."""


UNCOUNTED = {"_nrt": False} if hasattr(numba.core.options.DefaultOptions, "_nrt") else {}
"""Without counts of references: a slice costs two atomic additions with them, and a block takes a dozen."""


def compiled(*, allocates: bool = False, **options: Any) -> Any:
    """A decorator: machine code, kept on disk where a folder can be written. `allocates`: for a function that makes arrays."""
    options |= {"error_model": "numpy"} | ({} if allocates else UNCOUNTED)

    def decorate(function: Any) -> Any:
        try:
            return _by_folder(numba.njit(cache=True, **options)(function))
        except RuntimeError:  # nowhere to keep it: it is compiled in each process
            return numba.njit(**options)(function)

    return decorate


def _by_folder(function: Any) -> Any:
    """Keep machine code as long as no file of this folder changes. numba looks at a function's own, and its parts stand in others."""
    kept = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if kept is not None:
        kept._source_stamp = kept._source_stamp, FOLDER
    return function


def inlined(function: Any) -> Any:
    """A decorator for parts of the pass, which become one function with their caller: each level would be optimised again."""
    return numba.njit(inline="always", error_model="numpy")(function)


class _Notice(numba.core.event.Listener):
    """Says once in a process that code is being compiled: minutes without a word on a busy machine look like a hang."""

    said = False

    def on_start(self, event: Any) -> None:
        """A function that was not found on disk."""
        if self.said or not event.data["dispatcher"].py_func.__module__.startswith("trimtab."):
            return
        self.said = True
        logging.getLogger("trimtab").warning(
            "trimtab: compiling the fast pass, once per installation (about half a minute). "
            "Run `trimtab doctor --warm` to do it ahead of time, or set TRIMTAB_FAST=0 to use the plain form."
        )

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


NOTICE = _Notice()
numba.core.event.register("numba:compile", NOTICE)


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
def where_marked(value, mark):
    """The value where the mark is ones, 0 where it is zeros, whatever the value is."""
    return i32(f32(value).view(i32) & mark).view(f32)


@compiled()
@no_type_check
def one_of(mark, value, other):
    """One integer where the mark is ones, the other where it is zeros."""
    return i32((value & mark) | (other & ~mark))


@compiled()
@no_type_check
def between(value, lower, upper):
    """The value within bounds; NaN is the lower one."""
    value = value if value > lower else lower
    return value if value < upper else upper


_STRIDE = 512
LOG2_E, SHIFT = f32(1.44269504), f32(12582912.0)  # 1.5 · 2²³: adding it rounds to an integer
LN2_HIGH, LN2_LOW = f32(0.693359375), f32(-2.12194440e-4)  # the first times a small integer is exact
LOWEST, HIGHEST = f32(-87.0), f32(87.0)
NEAR = f32(0.34)
"""Within ±ln 2 / 2 nothing is to be reduced: k is 0 and r is x."""


@compiled(fastmath=CONTRACTED)
@no_type_check
def both_remainders(r):
    """e^r − 1 − r and e^−r − 1 + r for |r| ≤ NEAR: one polynomial, its even part and its odd one."""
    s = r * r
    even = (f32(1.3981999507e-3) * s + f32(4.1665795894e-2)) * s + f32(5.0000001201e-1)
    odd = ((f32(1.9875691500e-4) * s + f32(8.3334519073e-3)) * s + f32(1.6666665459e-1)) * r
    return s * (even + odd), s * (even - odd)


@compiled(fastmath=CONTRACTED)
@no_type_check
def _reduce(x):
    """k, 2^k, r and e^r − 1 − r for x = k·ln 2 + r, |r| ≤ ln 2 / 2."""
    k = (x * LOG2_E + SHIFT) - SHIFT
    r = (x - k * LN2_HIGH) - k * LN2_LOW
    p, _ = both_remainders(r)
    scale = i32(i32(i32(k) + i32(127)) << i32(23)).view(f32)
    return k, scale, r, p


@compiled(fastmath=CONTRACTED)
@no_type_check
def exponential_parts(x):
    """e^x − 1, e^x − 1 − x and e^x, for |x| ≤ 87; near 0 the second is no difference of the first, and keeps its digits."""
    k, scale, r, p = _reduce(x)
    grown = scale * (r + p)
    excess = grown + (scale - ONE)
    apart = p if k == ZERO else excess - x
    return excess, apart if apart > ZERO else ZERO, grown + scale


@compiled(fastmath=CONTRACTED)
@no_type_check
def near_parts(x):
    """The same for |x| ≤ NEAR, and e^−x − 1 + x."""
    ahead, behind = both_remainders(x)
    excess = x + ahead
    return excess, ahead, excess + ONE, behind


@compiled(fastmath=CONTRACTED)
@no_type_check
def exponential_of(x):
    """e^x for |x| ≤ 87."""
    _, scale, r, p = _reduce(x)
    return scale * (r + p) + scale


@compiled(fastmath=CONTRACTED)
@no_type_check
def k3_reversed(x, excess, k3, ratio):
    """e^(−x) − 1 + x, without a second exponential."""
    return (x * excess - k3) / ratio


@compiled()
@no_type_check
def exponentials(x, excess, k3, ratio):
    """The three of each number, for |x| ≤ 87."""
    for i in range(len(x)):
        excess[i], k3[i], ratio[i] = exponential_parts(x[i])


@compiled()
@no_type_check
def ratios_and_k3(x, ratio, k3):
    """Two of the three."""
    for i in range(len(x)):
        _, k3[i], ratio[i] = exponential_parts(x[i])


@compiled()
@no_type_check
def exponential(x, out):
    """e^x, of what lies below −87 as of −87."""
    for i in range(len(x)):
        out[i] = exponential_of(x[i] if x[i] > LOWEST else LOWEST)


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


@compiled()
@no_type_check
def greatest_magnitude(x):
    """The greatest |x|, of numbers that are 0 where they do not count."""
    top = i32(0)
    for i in range(len(x)):
        top = max(top, i32(f32(x[i]).view(i32) & SIGN))
    return i32(top).view(f32)


@compiled(fastmath=SUMMED)
@no_type_check
def total_of(value):
    """The sum, in float64."""
    total = 0.0
    for i in range(len(value)):
        total += f64(value[i])
    return total


@compiled(fastmath=SUMMED)
@no_type_check
def gather(value, scope):
    """Number, sum, least and greatest of the values in scope; +inf and −inf where nothing is."""
    number, total, least, greatest = i32(0), 0.0, TOP, BOTTOM
    for i in range(len(value)):
        mark, order = -i32(scope[i]), bits_in_order(value[i])
        number = i32(number - mark)
        total += f64(where_marked(value[i], mark))
        least, greatest = min(least, one_of(mark, order, TOP)), max(greatest, one_of(mark, order, BOTTOM))
    return f64(number), total, float_at(least), float_at(greatest)
