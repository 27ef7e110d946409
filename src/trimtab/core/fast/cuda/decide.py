# pyright: basic
"""The kernel that decides: one program for each row, from log-probs to what is kept and its weight, and the row's record.

    log-probs ─► measures of the row ─► a look at it for each gate ─► one more if it has a weight of its own ─► kept, weight, record

Each look reads the row again, which then lies in the cache: nothing is left in memory between looks but the verdicts, in one integer.
Padded rows and packed sequences differ in where a row starts.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from trimtab.core.fast.cuda.gates import judge_row, judge_tokens, store_described
from trimtab.core.fast.cuda.numbers import (
    INFINITY,
    LARGEST,
    LIMIT,
    LOG_MOST,
    MOST,
    as_float32,
    clamped,
    describe_marked,
    marked_greatest,
    marked_number,
    marked_sum,
    nothing,
    ratio_of,
)
from trimtab.core.fast.cuda.places import (
    APART,
    CHI2,
    CHI2_ROW,
    DISTANCE,
    FAR,
    GATE_SUMS,
    K3,
    K3_REVERSE,
    KL,
    KL_REVERSE,
    LOG_DIFF,
    MASKED,
    MISSING,
    PARTIAL,
    PERPLEXITY,
    POSITIVE,
    PROBABILITY,
    RATIO,
    ROWS,
    TOKEN_SUMS,
    TRAINED,
)
from trimtab.core.fast.cuda.tokens import log_probs, log_ratios, row_of
from trimtab.core.fast.cuda.weights import weigh_row


@triton.jit(do_not_specialize=["width"])
@no_type_check
def decide_rows(
    given,
    outs,
    records,
    offsets,
    width,
    numbers,
    limits,
    rounding,
    columns: tl.constexpr,
    gates: tl.constexpr,
    weighs: tl.constexpr,
    packed: tl.constexpr,
    joint: tl.constexpr,
    block: tl.constexpr,
):
    """Run a program over one row.

    `given`: target, base, mask, and two log-probs a token needs too; `outs`: log r, weight, trained, kept; `numbers` and `limits`: those
    of the gates and of the weight; `rounding`: how far above 0 rounding takes a log-prob of each of the four.
    """
    row, start, length = row_of(offsets, width, packed)
    record = records + row * columns
    _measure_counts(given, start, length, record, rounding, joint, block)
    _measure_drift(given, start, length, record, len(gates), joint, block)
    verdicts = 0
    for g in tl.static_range(len(gates)):
        if gates[g][1] == 1:
            verdicts = judge_row(given, start, length, verdicts, numbers, record, g, gates, joint, block)
        else:
            judge_tokens(given, start, length, verdicts, numbers, record, g, gates, joint, block)
    weigh_row(given, outs, start, length, verdicts, numbers, limits, record, gates, weighs, joint, block)


@triton.jit
@no_type_check
def _measure_counts(given, start, length, record, rounding, joint: tl.constexpr, block: tl.constexpr):
    """How many tokens there are, lack log-probs, or came with something that is no log-prob and no mask."""
    masked, count, positive, partial = nothing(), nothing(), nothing(), nothing()
    for first in range(0, length, block):
        place = first + tl.arange(0, block)
        at, there = start + place, place < length
        _, trained = log_ratios(given, at, there, joint)
        mark = tl.load(given[2] + at, mask=there, other=0)
        high = (log_probs(given[0], at, there) > rounding[0]) | (log_probs(given[1], at, there) > rounding[1])
        if joint:
            high = (
                high | (log_probs(given[3], at, there) > rounding[2]) | (log_probs(given[4], at, there) > rounding[3])
            )
        masked += marked_number(mark != 0)
        count += marked_number(trained)
        positive += marked_number(trained & high)
        partial += marked_number(trained & (mark != 1))
    tl.store(record + MASKED, masked)
    tl.store(record + TRAINED, count)
    tl.store(record + MISSING, masked - count)
    tl.store(record + POSITIVE, positive)
    tl.store(record + PARTIAL, partial)


@triton.jit
@no_type_check
def _measure_drift(given, start, length, record, count: tl.constexpr, joint: tl.constexpr, block: tl.constexpr):
    """How far the two policies lie apart in this row."""
    total, base_total, reverse, third, back = nothing(), nothing(), nothing(), nothing(), nothing()
    chi, distance, moved = nothing(), nothing(), nothing()
    number, mean, squares = nothing(), nothing(), nothing()
    high, low, far, peak = nothing() - INFINITY, nothing() - INFINITY, nothing(), nothing()
    for first in range(0, length, block):
        place = first + tl.arange(0, block)
        at, there = start + place, place < length
        x, trained = log_ratios(given, at, there, joint)
        target, base = log_probs(given[0], at, there), log_probs(given[1], at, there)
        near, ratio = clamped(x.to(tl.float64), -LIMIT, LIMIT), ratio_of(x, -LIMIT, LIMIT)
        total += marked_sum(x, trained)
        base_total += marked_sum(base, trained)
        reverse += marked_sum(ratio * near, trained)
        third += marked_sum(tl.maximum(ratio - 1.0 - near, 0.0), trained)
        back += marked_sum(tl.maximum(1.0 / ratio - 1.0 + near, 0.0), trained)
        chi += marked_sum((ratio - 1.0) * (ratio + 1.0), trained)
        distance += marked_sum(tl.abs(x), trained)
        apart = tl.abs(tl.minimum(tl.exp(target), LARGEST) - tl.minimum(tl.exp(base), LARGEST))
        moved += marked_sum(apart, trained)
        peak = tl.maximum(peak, marked_greatest(apart, trained))
        far = tl.maximum(far, marked_greatest(tl.abs(x), trained))
        high = tl.maximum(high, marked_greatest(ratio, trained))
        low = tl.maximum(low, marked_greatest(-ratio, trained))
        number, mean, squares = describe_marked(ratio, trained, number, mean, squares)
    tl.store(record + KL, -total)
    tl.store(record + KL_REVERSE, reverse)
    tl.store(record + K3, third)
    tl.store(record + K3_REVERSE, back)
    tl.store(record + CHI2, chi)
    tl.store(record + DISTANCE, distance)
    tl.store(record + PROBABILITY, moved)
    tops = record + TOKEN_SUMS + GATE_SUMS * count
    tl.store(tops + FAR, far)
    tl.store(tops + APART, peak)
    store_described(record, RATIO, count, number, mean, squares, high, low)
    _measure_perplexity(number, total, base_total, record, tops)


@triton.jit
@no_type_check
def _measure_perplexity(number, total, base_total, record, tops):
    """How surprised each policy is by this row; a row without tokens does not count."""
    some, tokens = (number > 0).to(tl.float64), tl.maximum(number, 1.0)
    base, apart = base_total / tokens, total / tokens
    tl.store(record + ROWS, some)
    tl.store(record + PERPLEXITY, some * tl.exp(tl.minimum(-base, LOG_MOST)))
    tl.store(record + PERPLEXITY + 1, some * tl.exp(tl.minimum(-base - apart, LOG_MOST)))
    tl.store(record + PERPLEXITY + 2, some * tl.exp(tl.minimum(-apart, LOG_MOST)))
    tl.store(record + PERPLEXITY + 3, -apart)
    tl.store(record + PERPLEXITY + 4, tl.abs(apart))
    tl.store(record + CHI2_ROW, some * (tl.exp(2.0 * clamped(total, -LIMIT, LIMIT)) - 1.0))
    shown = clamped(as_float32(apart).to(tl.float64), -MOST, MOST)
    tl.store(tops + LOG_DIFF, tl.where(number > 0, -shown, -INFINITY))
    tl.store(tops + LOG_DIFF + 1, tl.where(number > 0, shown, -INFINITY))
