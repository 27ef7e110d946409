# pyright: basic
"""The weight of a row's tokens: by their own ratio, by one of the row, or 1; and what is written for each token.

The codes of a weight are those of `program.py`: level (0 one, 1 token, 2 geometric, 3 sequence), outside (1: zero), scope (1: kept),
limit (1 on tokens, 2 on what is gathered); its numbers lower, upper, their logarithms, limit.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from trimtab.core.fast.cuda.gates import gather, let_by, store_described
from trimtab.core.fast.cuda.numbers import (
    INFINITY,
    LOG_MOST,
    MOST,
    as_float32,
    clamped,
    describe_marked,
    marked_greatest,
    marked_number,
    nothing,
)
from trimtab.core.fast.cuda.places import ABOVE, BELOW, KEPT, RAW, ROWS_KEPT, WEIGHED, WEIGHT
from trimtab.core.fast.cuda.tokens import log_ratios


@triton.jit
@no_type_check
def row_log(
    given,
    start,
    length,
    verdicts,
    numbers,
    limits,
    gates: tl.constexpr,
    weighs: tl.constexpr,
    joint: tl.constexpr,
    block: tl.constexpr,
):
    """The logarithm of the row's own weight before its bounds, in float32; 0 where tokens have their own, or all weigh 1."""
    log = nothing().to(tl.float32)
    if weighs[0] > 1:
        until: tl.constexpr = len(gates) if weighs[2] == 1 else 0
        number, total, _, _ = gather(
            given, start, length, verdicts, numbers, limits[4], 0, weighs[3], until, gates, joint, block
        )
        log = as_float32(total / tl.maximum(number, 1.0) if weighs[0] == 2 else total)
        if weighs[3] == 2:
            log = clamped(log, -limits[4], limits[4])
    return log


# Bounds 0.5 and 2 (logarithms −0.69 and 0.69), outside clamp and outside zero:
#     log          −1.0    0.0    0.5    0.7
#     ratio         0.37   1.0    1.65   2.01
#     clamp         0.5    1.0    1.65   2.0
#     zero          0      1.0    1.65   0
@triton.jit
@no_type_check
def bounded(log, limits, weighs: tl.constexpr):
    """The weight whose logarithm before bounds this is. What lies outside is found by logarithms: e^(log 3) is not 3."""
    value = as_float32(tl.exp(log.to(tl.float64)))
    if weighs[0] == 0:
        return tl.full(log.shape, 1.0, tl.float32)
    elif weighs[1] == 0:
        return clamped(value, limits[0], limits[1])
    else:
        return tl.where((log >= limits[2]) & (log <= limits[3]), value, 0.0)


@triton.jit
@no_type_check
def weigh_row(
    given,
    outs,
    start,
    length,
    verdicts,
    numbers,
    limits,
    record,
    gates: tl.constexpr,
    weighs: tl.constexpr,
    joint: tl.constexpr,
    block: tl.constexpr,
):
    """Write log r, weight, trained and kept of each token (`outs`), and add to the record what is said of weights."""
    of_row = row_log(given, start, length, verdicts, numbers, limits, gates, weighs, joint, block)
    weighed, above, below = nothing(), nothing(), nothing()
    number, mean, squares, high, low = nothing(), nothing(), nothing(), nothing() - INFINITY, nothing() - INFINITY
    raws, raw_mean, raw_squares = nothing(), nothing(), nothing()
    raw_high, raw_low = nothing() - INFINITY, nothing() - INFINITY
    for first in range(0, length, block):
        place = first + tl.arange(0, block)
        at, there = start + place, place < length
        x, trained = log_ratios(given, at, there, joint)
        kept = let_by(x, trained, verdicts, numbers, gates, len(gates), 0)
        acts = let_by(x, kept, verdicts, numbers, gates, len(gates), 1)
        log = _log_of_tokens(x, of_row, limits, weighs)
        value = tl.where(acts, bounded(log, limits, weighs), 0.0)
        tl.store(outs[0] + at, x, mask=there)
        tl.store(outs[1] + at, value, mask=there)
        tl.store(outs[2] + at, trained.to(tl.uint8), mask=there)
        tl.store(outs[3] + at, kept.to(tl.uint8), mask=there)
        shown = tl.minimum(value, MOST)
        number, mean, squares = describe_marked(shown, kept, number, mean, squares)
        high = tl.maximum(high, marked_greatest(shown, kept))
        low = tl.maximum(low, marked_greatest(-shown, kept))
        if weighs[0] > 0:
            scope = kept if weighs[2] == 1 else trained
            weighed += marked_number(scope)
            above += marked_number(scope & (log > limits[3]))
            below += marked_number(scope & (log < limits[2]))
            raw = as_float32(tl.exp(tl.minimum(log.to(tl.float64), LOG_MOST)))
            raws, raw_mean, raw_squares = describe_marked(raw, kept, raws, raw_mean, raw_squares)
            raw_high = tl.maximum(raw_high, marked_greatest(raw, kept))
            raw_low = tl.maximum(raw_low, marked_greatest(-raw, kept))
    tl.store(record + KEPT, number)
    tl.store(record + ROWS_KEPT, (number > 0).to(tl.float64))
    tl.store(record + WEIGHED, weighed)
    tl.store(record + ABOVE, above)
    tl.store(record + BELOW, below)
    store_described(record, WEIGHT, len(gates), number, mean, squares, high, low)
    store_described(record, RAW, len(gates), raws, raw_mean, raw_squares, raw_high, raw_low)


@triton.jit
@no_type_check
def _log_of_tokens(x, of_row, limits, weighs: tl.constexpr):
    """The logarithm of each token's weight before bounds."""
    if weighs[0] > 1:
        return x * 0.0 + of_row
    elif weighs[3] > 0:
        return clamped(x, -limits[4], limits[4])
    else:
        return x
