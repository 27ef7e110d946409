# pyright: basic
"""e^x, e^x − 1 and e^x − 1 − x in straight-line float32 arithmetic: one polynomial, no branch, no call into a library."""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.machine import CONTRACTED, ONE, ZERO, compiled, f32, i32

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
