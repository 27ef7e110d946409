# pyright: basic
"""PPO's clip over a row: its loss, its slope in each log-prob, and the sums its metrics are made of.

The formulas are those of `losses/clip.py`, with the slope written out beside the value.
"""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from trimtab.core.fast.cuda.numbers import (
    INFINITY,
    LIMIT,
    as_float32,
    clamped,
    describe_marked,
    marked_greatest,
    marked_number,
    marked_sum,
    nothing,
    ratio_of,
)
from trimtab.core.fast.cuda.tokens import log_probs, row_of

LOG_LARGEST = tl.constexpr(88.72282905206835)  # a little below: its exponential is a float32

LOSS = tl.constexpr(0)
TRAINED = tl.constexpr(1)
KEPT = tl.constexpr(2)
K1 = tl.constexpr(3)
K3 = tl.constexpr(4)
CLIPPED = tl.constexpr(5)  # above, below, by the dual bound
UNVALUED = tl.constexpr(8)  # trained, without an advantage
UP = tl.constexpr(9)  # a positive advantage: all, and those that act
DOWN = tl.constexpr(11)
ACTING = tl.constexpr(13)
ADVANTAGE = tl.constexpr(14)  # its sum: over all, and over those that act
SUMS = tl.constexpr(16)
SIZES = (SUMS.value, 2, 1)
"""Sums, the ends of ρ, and its description: a record like those of `places.py`."""


@triton.jit(do_not_specialize=["width"])
@no_type_check
def clip_rows(
    given,
    decided,
    gradient,
    records,
    offsets,
    width,
    settings,
    divisor,
    scale,
    most,
    divided: tl.constexpr,
    by_row: tl.constexpr,
    packed: tl.constexpr,
    block: tl.constexpr,
):
    """Write the slope of the step's loss in each log-prob of a row, and the row's record.

    `given`: current, anchor, advantages (`by_row`: one for each row); `decided`: weight, trained, kept; `settings`: 1 − low, 1 + high,
    dual; `divisor` and `scale`: see `factor_of`; `most`: what the loss of a token counts as at the most.
    """
    row, start, length = row_of(offsets, width, packed)
    factor = factor_of(divisor, scale, divided).to(tl.float64)
    record = records + row * (SUMS + 5)
    loss, above, below, cut = nothing(), nothing(), nothing(), nothing()
    for first in range(0, length, block):
        place = first + tl.arange(0, block)
        at, there = start + place, place < length
        kept = tl.load(decided[2] + at, mask=there, other=0) != 0
        weight = tl.load(decided[0] + at, mask=there, other=0.0)
        log, advantage, _ = _terms(given, row, at, there, kept, by_row)
        rho = as_float32(ratio_of(log, -INFINITY, LOG_LARGEST))
        value, slope = clipped(rho, advantage, settings)
        tl.store(gradient + at, as_float32(tl.where(kept, slope * weight * factor, 0.0)), mask=there)
        # 0 · inf, from a token that weighs nothing, is 0
        loss += marked_sum(clamped(value * weight, -most, most), kept & (weight != 0))
        above += marked_number(kept & (rho > settings[1]) & (advantage > 0))
        below += marked_number(kept & (rho < settings[0]) & (advantage < 0))
        cut += marked_number(kept & (rho > settings[2]) & (advantage < 0))
    tl.store(record + LOSS, loss)
    tl.store(record + CLIPPED, above)
    tl.store(record + CLIPPED + 1, below)
    tl.store(record + CLIPPED + 2, cut)
    _measure_ratio(given, decided, row, start, length, record, by_row, block)
    _measure_advantages(given, decided, row, start, length, record, by_row, block)


@triton.jit
@no_type_check
def factor_of(divisor, scale, divided: tl.constexpr):
    """What each token's loss is multiplied by: `scale`, and where `divided` over a count that stands on the device; 0 of a count of 0."""
    if divided:
        count = tl.load(divisor).to(tl.float64)
        return tl.where(count > 0, scale / tl.where(count > 0, count, 1.0), 0.0).to(tl.float32)
    else:
        return (nothing() + scale).to(tl.float32)


@triton.jit
@no_type_check
def _terms(given, row, at, there, marks, by_row: tl.constexpr):
    """log ρ and the advantage where marked, 0 elsewhere, and where an advantage is there: one that is not finite is taken as 0."""
    log = tl.where(marks, log_probs(given[0], at, there) - log_probs(given[1], at, there), 0.0)
    if by_row:
        advantage = tl.load(given[2] + row).to(tl.float32) + log * 0.0
    else:
        advantage = log_probs(given[2], at, there)
    valued = tl.abs(advantage) < INFINITY
    return log, tl.where(valued & marks, advantage, 0.0), valued


# With low = high = 0.2 and dual = 3, loss and slope in log ρ (that in ρ, times ρ):
#   A = +1   ρ = 0.7   −0.7, −0.7   it fell: pull it up          A = −1   ρ = 0.7   0.8, 0     it fell far enough
#            ρ = 1.1   −1.1, −1.1                                         ρ = 1.5   1.5, 1.5   it rose: push it down
#            ρ = 1.5   −1.2, 0      it rose far enough                    ρ = 4.0   3.0, 0     capped
@triton.jit
@no_type_check
def clipped(rho, advantage, settings):
    """The loss of each token, and its slope in log ρ, the latter in float64; `settings[2]` infinite: no dual bound."""
    free, fixed = advantage * rho, advantage * clamped(rho, settings[0], settings[1])
    gain = tl.where(free <= fixed, free, fixed)
    least = tl.where(settings[2] < INFINITY, -settings[2] * tl.abs(advantage), -INFINITY)
    capped = gain < least
    moves = (free <= fixed) | ((rho >= settings[0]) & (rho <= settings[1]))
    slope = -advantage.to(tl.float64) * rho.to(tl.float64)
    return -tl.where(capped, least, gain), tl.where(moves & (capped == 0), slope, 0.0)


@triton.jit
@no_type_check
def _measure_ratio(given, decided, row, start, length, record, by_row: tl.constexpr, block: tl.constexpr):
    """How far the current policy has moved from the anchor, over the kept tokens."""
    first_order, third = nothing(), nothing()
    number, mean, squares = nothing(), nothing(), nothing()
    high, low = nothing() - INFINITY, nothing() - INFINITY
    for first in range(0, length, block):
        place = first + tl.arange(0, block)
        at, there = start + place, place < length
        kept = tl.load(decided[2] + at, mask=there, other=0) != 0
        log, _, _ = _terms(given, row, at, there, kept, by_row)
        near, ratio = clamped(log.to(tl.float64), -LIMIT, LIMIT), ratio_of(log, -LIMIT, LIMIT)
        first_order -= marked_sum(log, kept)
        third += marked_sum(tl.maximum(ratio - 1.0 - near, 0.0), kept)
        number, mean, squares = describe_marked(ratio, kept, number, mean, squares)
        high = tl.maximum(high, marked_greatest(ratio, kept))
        low = tl.maximum(low, marked_greatest(-ratio, kept))
    tl.store(record + KEPT, number)
    tl.store(record + K1, first_order)
    tl.store(record + K3, third)
    tl.store(record + SUMS, high)
    tl.store(record + SUMS + 1, low)
    tl.store(record + SUMS + 2, number)
    tl.store(record + SUMS + 3, mean)
    tl.store(record + SUMS + 4, squares)


@triton.jit
@no_type_check
def _measure_advantages(given, decided, row, start, length, record, by_row: tl.constexpr, block: tl.constexpr):
    """Does the correction keep right answers as often as wrong ones? Over the trained tokens, and those that act."""
    count, unvalued, acting = nothing(), nothing(), nothing()
    up, up_acting, down, down_acting, whole, net = nothing(), nothing(), nothing(), nothing(), nothing(), nothing()
    for first in range(0, length, block):
        place = first + tl.arange(0, block)
        at, there = start + place, place < length
        trained = tl.load(decided[1] + at, mask=there, other=0) != 0
        acts = trained & (tl.load(decided[0] + at, mask=there, other=0.0) > 0)
        _, advantage, valued = _terms(given, row, at, there, trained, by_row)
        count += marked_number(trained)
        unvalued += marked_number(trained & (valued == 0))
        acting += marked_number(acts)
        up += marked_number(advantage > 0)
        up_acting += marked_number(acts & (advantage > 0))
        down += marked_number(advantage < 0)
        down_acting += marked_number(acts & (advantage < 0))
        whole += marked_sum(advantage, trained)
        net += marked_sum(advantage, acts)
    tl.store(record + TRAINED, count)
    tl.store(record + UNVALUED, unvalued)
    tl.store(record + ACTING, acting)
    tl.store(record + UP, up)
    tl.store(record + UP + 1, up_acting)
    tl.store(record + DOWN, down)
    tl.store(record + DOWN + 1, down_acting)
    tl.store(record + ADVANTAGE, whole)
    tl.store(record + ADVANTAGE + 1, net)


QUOTIENTS = {
    "policy/clip_high": (CLIPPED.value, KEPT.value),
    "policy/clip_low": (CLIPPED.value + 1, KEPT.value),
    "policy/clip_dual": (CLIPPED.value + 2, KEPT.value),
    "policy/k1": (K1.value, KEPT.value),
    "policy/k3": (K3.value, KEPT.value),
    "advantage/missing_fraction": (UNVALUED.value, TRAINED.value),
    "selection/kept_given_positive": (UP.value + 1, UP.value),
    "selection/kept_given_negative": (DOWN.value + 1, DOWN.value),
    "selection/net_advantage": (ADVANTAGE.value + 1, ACTING.value),
    "selection/mean_advantage": (ADVANTAGE.value, TRAINED.value),
}
NAMES = (*QUOTIENTS, "policy/ratio_mean", "policy/ratio_min", "policy/ratio_max", "policy/loss")


@triton.jit
@no_type_check
def write_loss(record, loss, out, divisor, scale, averaged_over, divided: tl.constexpr, quotients: tl.constexpr):
    """Write the loss of the batch, and its metrics in the order of `NAMES`."""
    found = as_float32(tl.load(record + LOSS) * factor_of(divisor, scale, divided).to(tl.float64))
    tl.store(loss, found)
    for k in tl.static_range(len(quotients)):
        total, number = tl.load(record + quotients[k][0]), tl.load(record + quotients[k][1])
        tl.store(out + k, as_float32(tl.where(number > 0, total / tl.where(number > 0, number, 1.0), 0.0)))
    out += len(quotients)
    some = tl.load(record + KEPT) > 0
    tl.store(out, as_float32(tl.load(record + SUMS + 3)))
    tl.store(out + 1, tl.where(some, as_float32(-tl.load(record + SUMS + 1)), 0.0))
    tl.store(out + 2, tl.where(some, as_float32(tl.load(record + SUMS)), 0.0))
    tl.store(out + 3, found / averaged_over)
