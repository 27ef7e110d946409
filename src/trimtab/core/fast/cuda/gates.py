# pyright: basic
"""Gates over a row: which tokens an earlier gate left, what a gate gathers from them, its verdict, and what it adds to the record.

The codes of a gate are those of `program.py`: metric, level, agg, action, scope, limit; its numbers lower, upper, limit. Codes are known
when a kernel is compiled, so that it holds no gate that a rule does not have; numbers are given with each call. The verdicts of gates
on rows stand in the bits of one integer.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from trimtab.core.fast.cuda.numbers import (
    INFINITY,
    LIMIT,
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
from trimtab.core.fast.cuda.places import GATE, GATE_SUMS, TOKEN_SUMS, TOKEN_TOPS
from trimtab.core.fast.cuda.tokens import divergence, log_ratios, within_limit


@triton.jit
@no_type_check
def let_by(x, marks, verdicts, numbers, gates: tl.constexpr, until: tl.constexpr, action: tl.constexpr):
    """The marked tokens that every gate with this action, of the first so many, lets by."""
    for g in tl.static_range(until):
        if gates[g][3] == action:
            if gates[g][1] == 1:
                marks = marks & (((verdicts >> g) & 1) != 0)
            else:
                value = divergence(gates[g][0], within_limit(x, gates[g][5], numbers[g][2]), marks)
                marks = marks & (value >= numbers[g][0]) & (value <= numbers[g][1])
    return marks


@triton.jit
@no_type_check
def gather(
    given,
    start,
    length,
    verdicts,
    numbers,
    bound,
    metric: tl.constexpr,
    limits: tl.constexpr,
    until: tl.constexpr,
    gates: tl.constexpr,
    joint: tl.constexpr,
    block: tl.constexpr,
):
    """Number, sum, least and greatest of a divergence over a row: of its trained tokens, less those that the first so many gates reject."""
    number, total = nothing(), nothing()
    least, greatest = nothing() + INFINITY, nothing() - INFINITY
    for first in range(0, length, block):
        place = first + tl.arange(0, block)
        x, trained = log_ratios(given, start + place, place < length, joint)
        scope = let_by(x, trained, verdicts, numbers, gates, until, 0)
        value = divergence(metric, within_limit(x, limits, bound), scope)
        number += marked_number(scope)
        total += marked_sum(value, scope)
        greatest = tl.maximum(greatest, marked_greatest(value, scope))
        least = tl.minimum(least, -marked_greatest(-value, scope))
    return number, total, least, greatest


@triton.jit
@no_type_check
def judge_row(
    given,
    start,
    length,
    verdicts,
    numbers,
    record,
    g: tl.constexpr,
    gates: tl.constexpr,
    joint: tl.constexpr,
    block: tl.constexpr,
):
    """A gate on the row: the verdicts with its own."""
    until: tl.constexpr = g if gates[g][4] == 1 else 0
    lower, upper, bound = numbers[g][0], numbers[g][1], numbers[g][2]
    number, total, least, greatest = gather(
        given, start, length, verdicts, numbers, bound, gates[g][0], gates[g][5], until, gates, joint, block
    )
    low, high = _statistic(number, total, least, greatest, gates[g][2])
    if gates[g][5] == 2:
        low, high = clamped(low, -bound, bound), clamped(high, -bound, bound)
    beyond, short = high > upper, low < lower
    inside = (low >= lower) & (high <= upper)
    lost = tl.where(inside, 0.0, number)
    some = (number > 0).to(tl.float64)
    own = record + TOKEN_SUMS + GATE_SUMS * g
    tl.store(own, number)
    tl.store(own + 1, lost)
    tl.store(own + 2, tl.where(beyond, lost, 0.0))
    tl.store(own + 3, tl.where(short, lost, 0.0))
    tl.store(own + 4, some)
    tl.store(own + 5, tl.where(inside, 0.0, some))
    shown = tl.where(tl.where(beyond == short, high >= -low, beyond), high, low)
    seen = _shown(shown, gates[g][0])
    ends = tl.where(number > 0, seen, -INFINITY), tl.where(number > 0, -seen, -INFINITY)
    store_described(record, GATE + g, len(gates), some, seen, nothing(), ends[0], ends[1])
    return verdicts | (inside.to(tl.int32) << g)


@triton.jit
@no_type_check
def _statistic(number, total, least, greatest, agg: tl.constexpr):
    """The least and the greatest of what a gate gathered (mean 0, sum 1, max 2, min 3, every 4), in float32; 0 where there was nothing."""
    low, high = least, greatest
    if agg == 0:
        low = total / tl.maximum(number, 1.0)
        high = low
    if agg == 1:
        low, high = total, total
    if agg == 2:
        low = greatest
    if agg == 3:
        high = least
    some = number > 0
    return tl.where(some, as_float32(low), 0.0), tl.where(some, as_float32(high), 0.0)


@triton.jit
@no_type_check
def _shown(value, metric: tl.constexpr):
    """What a gate measured as it is reported, in float64: a ratio where it is its logarithm."""
    if metric == 0:
        return ratio_of(value, -LIMIT, LIMIT)
    else:
        return clamped(value.to(tl.float64), -MOST, MOST)


@triton.jit
@no_type_check
def judge_tokens(
    given,
    start,
    length,
    verdicts,
    numbers,
    record,
    g: tl.constexpr,
    gates: tl.constexpr,
    joint: tl.constexpr,
    block: tl.constexpr,
):
    """A gate on the tokens of the row: what it looked at, turned away and measured. Its verdicts are worked out again where needed."""
    until: tl.constexpr = g if gates[g][4] == 1 else 0
    number, mean, squares = nothing(), nothing(), nothing()
    lost, high, low = nothing(), nothing(), nothing()
    greatest, least = nothing() - INFINITY, nothing() - INFINITY
    for first in range(0, length, block):
        place = first + tl.arange(0, block)
        x, trained = log_ratios(given, start + place, place < length, joint)
        scope = let_by(x, trained, verdicts, numbers, gates, until, 0)
        value = divergence(gates[g][0], within_limit(x, gates[g][5], numbers[g][2]), scope)
        beyond, short = scope & (value > numbers[g][1]), scope & (value < numbers[g][0])
        high += marked_number(beyond)
        low += marked_number(short)
        lost += marked_number(beyond | short)
        seen = _shown(value, gates[g][0])
        number, mean, squares = describe_marked(seen, scope, number, mean, squares)
        greatest = tl.maximum(greatest, marked_greatest(seen, scope))
        least = tl.maximum(least, marked_greatest(-seen, scope))
    some = number > 0
    own = record + TOKEN_SUMS + GATE_SUMS * g
    tl.store(own, number)
    tl.store(own + 1, lost)
    tl.store(own + 2, high)
    tl.store(own + 3, low)
    tl.store(own + 4, some.to(tl.float64))
    tl.store(own + 5, (some & (lost == number)).to(tl.float64))
    store_described(record, GATE + g, len(gates), number, mean, squares, greatest, least)


@triton.jit
@no_type_check
def store_described(record, which: tl.constexpr, count: tl.constexpr, number, mean, squares, greatest, least):
    """Number, mean, squares and ends of what is described, at their places in a record of so many gates; `least` with its sign turned."""
    tops: tl.constexpr = TOKEN_SUMS + GATE_SUMS * count
    described: tl.constexpr = GATE + count
    first: tl.constexpr = tops + TOKEN_TOPS + 2 * described
    tl.store(record + tops + TOKEN_TOPS + 2 * which, greatest)
    tl.store(record + tops + TOKEN_TOPS + 2 * which + 1, least)
    tl.store(record + first + which, number)
    tl.store(record + first + described + which, mean)
    tl.store(record + first + 2 * described + which, squares)
