# pyright: basic
"""A block of tokens as every kernel sees it: its log-ratios, which of them count, and their divergences by the codes of `program.py`."""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from trimtab.core.fast.cuda.numbers import INFINITY, clamped


@triton.jit
@no_type_check
def row_of(offsets, width, packed: tl.constexpr):
    """The row of this program: its number, where it starts, and how many tokens long it is."""
    row = tl.program_id(0).to(tl.int64)
    start, length = row * width, width
    if packed:
        start = tl.load(offsets + row).to(tl.int64)
        length = (tl.load(offsets + row + 1).to(tl.int64) - start).to(tl.int32)
    return row, start, length


@triton.jit
@no_type_check
def log_probs(policy, at, there):
    """Log-probs in float32, whatever they are given in; 0 outside the row."""
    return tl.load(policy + at, mask=there, other=0.0).to(tl.float32)


@triton.jit
@no_type_check
def log_ratios(given, at, there, joint: tl.constexpr):
    """ℓ of a block, 0 where a token does not count, and which are trained: masked in, and with every log-prob.

    `given`: target, base, mask and, where `joint`, two more log-probs that a token needs too.
    """
    x = log_probs(given[0], at, there) - log_probs(given[1], at, there)
    trained = (tl.load(given[2] + at, mask=there, other=0) != 0) & (tl.abs(x) < INFINITY)
    if joint:
        trained = trained & (tl.abs(log_probs(given[3], at, there) - log_probs(given[4], at, there)) < INFINITY)
    return tl.where(trained, x, 0.0), trained


@triton.jit
@no_type_check
def within_limit(x, limits: tl.constexpr, bound):
    """The log-ratio as a gate or a weight reads it: within its limit, where that bites on tokens (1)."""
    if limits == 1:
        return clamped(x, -bound, bound)
    else:
        return x


# A new divergence is a line here, under its code. ℓ = 0.5 gives, code by code,
#     0, 2: 0.5   1: −0.5   3: 0.125   4: 0.25   5: 0.5   6: e^0.5 − 1 − 0.5 = 0.149   7: e^−0.5 − 1 + 0.5 = 0.107
@triton.jit
@no_type_check
def divergence(metric: tl.constexpr, x, counted):
    """A divergence of each token, rounded to float32 as the plain form rounds it; 0 for ℓ = 0, which stands where nothing is counted."""
    if metric == 1:  # k1
        return -x
    elif metric == 3:  # k2
        return x * x * 0.5
    elif metric == 4:  # second moment
        return x * x
    elif metric == 5:  # abs log ratio
        return tl.abs(x)
    elif metric >= 6:
        return _exponential(metric, x, counted)
    else:  # ratio, and k1 reversed
        return x


@triton.jit
@no_type_check
def _exponential(metric: tl.constexpr, x, counted):
    """k3 (6, reversed 7, of |ℓ| 8), ratio deviation (9), mult prob error (10, which is 1 for ℓ = 0)."""
    side = x
    if metric == 7:
        side = -x
    if (metric == 8) | (metric == 10):
        side = tl.abs(x)
    grown = tl.exp(side.to(tl.float64))
    excess = (grown - 1.0).to(tl.float32)
    if metric == 10:
        return tl.where(counted, grown.to(tl.float32), 0.0)
    elif metric == 9:
        return tl.abs(excess)
    else:
        return tl.maximum(excess - side, 0.0)
