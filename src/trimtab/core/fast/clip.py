# pyright: basic
"""PPO's clip over the tokens of a batch: its sum and its gradient in each log-prob, and the sums its metrics are made of.

The formulas are those of `losses/clip.py`, with the derivative written out beside the value. A correction and the clip behind it run
chunk by chunk while it lies in the cache: of the tokens nothing is written but the gradient.

    log-probs ─► decide_chunk ─► weight, kept of a chunk (scratch) ─► clip_gradients ─► gradient of each log-prob
"""

from __future__ import annotations

from typing import Any, no_type_check

import numpy as np

from trimtab.config.correction import Correction
from trimtab.core.fast.decide import scratch
from trimtab.core.fast.loops import (
    BLOCK,
    BOTTOM,
    INFINITY,
    SIGN,
    SUMMED,
    TOP,
    ZERO,
    between,
    bits_in_order,
    compiled,
    count_bytes,
    exponential_of,
    exponential_parts,
    f32,
    f64,
    float_at,
    i32,
    last_counted,
    one_of,
    where_marked,
)
from trimtab.core.fast.records import fresh_sums, program
from trimtab.core.fast.stages import decide_chunk, end_of_chunk, row_ends
from trimtab.core.sums import LIMIT

FAR, LARGE = f32(LIMIT), f32(1e15)
"""A log ρ and an advantage beyond which the plain form works out the loss."""
WRITTEN, LEFT, MISSING = range(3)
"""What became of a loss: its gradient is written, it is left to the plain form, or a trained token lacks a log-prob."""


@compiled()
@no_type_check
def mask_missing(current, anchor, mask, out):
    """The mask less the tokens without one of two log-probs."""
    for i in range(len(out)):
        apart = current[i] - anchor[i]
        out[i] = (mask[i] != 0) & ((apart - apart) == ZERO)


@compiled()
@no_type_check
def _finite(given):
    """A mark where a number is finite."""
    return -i32((given - given) == ZERO)


@compiled()
@no_type_check
def _clip(rho, advantage, low, high, dual):
    """The loss of a token, and its derivative in log ρ; `dual` infinite: none."""
    free, fixed = advantage * rho, advantage * between(rho, low, high)
    gain = free if free <= fixed else fixed
    least = -dual * abs(advantage)
    capped = gain < least
    return -least if capped else -gain, where_marked(-free, -i32((free <= fixed) & (not capped)))


@compiled(fastmath=SUMMED)
@no_type_check
def _whole_gradients(current, anchor, advantage, weight, low, high, factor, grad):
    """The loss of tokens that are all kept, without a dual bound; the greatest |log ρ| and |A|, which say if each was a number."""
    loss, far, large = ZERO, i32(0), i32(0)
    for i in range(len(grad)):
        x = current[i] - anchor[i]
        rho = exponential_of(x)
        free, fixed = advantage[i] * rho, advantage[i] * between(rho, low, high)
        loss -= (free if free <= fixed else fixed) * weight[i]
        grad[i] = where_marked(-free, -i32(free <= fixed)) * weight[i] * factor
        far = max(far, i32(f32(x).view(i32) & SIGN))
        large = max(large, i32(f32(advantage[i]).view(i32) & SIGN))
    return loss, i32(far).view(f32), i32(large).view(f32)


@compiled(fastmath=SUMMED)
@no_type_check
def _gradient_block(current, anchor, given, weight, trained, kept, clip, factor, grad):
    low, high, dual = clip.low, clip.high, clip.dual
    loss, far, large, missing = ZERO, i32(0), i32(0), i32(0)
    for i in range(len(grad)):
        apart, mark = current[i] - anchor[i], -i32(kept[i])
        x, advantage = where_marked(apart, mark), where_marked(given[i], _finite(given[i]) & mark)
        _, _, rho = exponential_parts(x)
        value, derivative = _clip(rho, advantage, low, high, dual)
        grad[i] = derivative * weight[i] * factor
        loss += value * weight[i]
        far = max(far, i32(f32(x).view(i32) & SIGN))
        large = max(large, i32(f32(advantage).view(i32) & SIGN))
        missing = i32(missing | i32(~_finite(apart) & i32(trained[i])))
    return loss, i32(far).view(f32), i32(large).view(f32), missing


@compiled()
@no_type_check
def clip_gradients(current, anchor, advantages, weight, trained, kept, clip, factor, grad, loss):
    """Add the loss to loss[0], and write its gradient in each log-prob, times a factor. `clip`: a record `records.CLIP`."""
    for start in range(0, len(current), BLOCK):
        to = min(start + BLOCK, len(current))
        out, trained_block, kept_block = grad[start:to], trained[start:to], kept[start:to]
        if count_bytes(trained_block) == 0:
            out[:] = ZERO
            continue
        now, then, worth, weights = current[start:to], anchor[start:to], advantages[start:to], weight[start:to]
        if clip.dual == INFINITY and count_bytes(kept_block) == len(kept_block):
            value, far, large = _whole_gradients(now, then, worth, weights, clip.low, clip.high, factor, out)
            if far <= FAR and large <= LARGE:
                loss[0] += f64(value)
                continue
        value, far, large, missing = _gradient_block(
            now, then, worth, weights, trained_block, kept_block, clip, factor, out
        )
        if missing != 0:
            return MISSING
        if far > FAR or large > LARGE:
            return LEFT
        loss[0] += f64(value)
    return WRITTEN


@compiled()
@no_type_check
def gradient_rows(given, offsets, rule, room, sums, call, loss):
    """A correction and the clip behind it, chunk by chunk; what became of the loss, which is added to loss[0].

    `room`: scratch of a chunk, and where its log-ratios, weights and marks go. `call`: current log-probs, their anchor, advantages, where
    the gradient goes, a record `records.CLIP`, and the factor of the gradient.
    """
    target, base, mask = given
    stages, numbers, marks = room
    current, anchor, advantages, grad, clip, factor = call
    rows, judged, totals, of_gates = sums
    first, number = 0, len(offsets) - 1
    while first < number:
        start, last = offsets[first], end_of_chunk(offsets, first)
        end = offsets[last]
        stop = start + last_counted(mask[start:end])
        grad[stop:end] = ZERO
        part, n = row_ends(offsets, first, last, stop, stages), stop - start
        chunk = target[start:stop], base[start:stop], mask[start:stop]
        weight, trained, kept = numbers[1, :n], marks[0, :n], marks[1, :n]
        out = numbers[0, :n], weight, trained, kept
        if not decide_chunk(chunk, part, out, rule, stages, (rows[first:last], judged[first:last], totals, of_gates)):
            return LEFT
        now, then, worth = current[start:stop], anchor[start:stop], advantages[start:stop]
        state = clip_gradients(now, then, worth, weight, trained, kept, clip[0], factor, grad[start:stop], loss)
        if state != WRITTEN:
            return state
        first = last
    return WRITTEN


def sweep(rule: Correction, given: tuple[Any, ...], offsets: Any, call: tuple[Any, ...]) -> tuple[int, Any, float]:
    """Write the gradient of a loss behind its correction; what became of it, what is known of each row, and the sum of the loss.

    `given`: log-probs of the rule's pair, and the mask. `call`: as of `gradient_rows`.
    """
    known, stages, total = program(rule), scratch(offsets), np.zeros(1)
    sums = fresh_sums(len(offsets) - 1, len(known.gates))
    numbers, flags, _ = stages
    room = stages, np.empty((2, numbers.shape[1]), np.float32), np.empty((2, flags.shape[1]), np.uint8)
    state = gradient_rows(given, offsets, (known.gates, known.weights, False), room, sums, call, total)
    rows, *_ = sums
    return state, rows, float(total.sum())


def row_lengths(mask: Any, offsets: Any) -> Any:
    """The tokens of the mask in each row, before anything is known to be missing."""
    lengths = np.empty(len(offsets) - 1)
    _count_rows(mask, offsets, lengths)
    return lengths


@compiled()
@no_type_check
def _count_rows(mask, offsets, out):
    """How many tokens of each row are marked."""
    for row in range(len(out)):
        out[row] = count_bytes(mask[offsets[row] : offsets[row + 1]])


@compiled(fastmath=SUMMED)
@no_type_check
def _ratio_block(current, anchor, given, kept, low, high, dual):
    """Of the kept: how many, Σ log ρ, Σk3, Σ(ρ − 1), the least and the greatest log ρ; and where the clip takes the gradient away: above,
    below, and by the dual bound."""
    number, log, third, linear, least, greatest = i32(0), ZERO, ZERO, ZERO, TOP, BOTTOM
    above, below, cut = i32(0), i32(0), i32(0)
    for i in range(len(kept)):
        mark = -i32(kept[i])
        x = where_marked(current[i] - anchor[i], mark)
        excess, k3, rho = exponential_parts(x)
        advantage = where_marked(given[i], _finite(given[i]) & mark)
        number = i32(number - mark)
        log += x
        third += k3
        linear += excess
        order = bits_in_order(x)
        least = min(least, one_of(mark, order, TOP))
        greatest = max(greatest, one_of(mark, order, BOTTOM))
        above = i32(above + i32((rho > high) & (advantage > ZERO)))
        below = i32(below + i32((rho < low) & (advantage < ZERO)))
        cut = i32(cut + i32((rho > dual) & (advantage < ZERO)))
    return number, log, third, linear, least, greatest, above, below, cut


@compiled(fastmath=SUMMED)
@no_type_check
def _whole_ratios(current, anchor, advantage, low, high):
    """The same of tokens that are all kept and have an advantage, without a dual bound."""
    log, third, linear, least, greatest, above, below = ZERO, ZERO, ZERO, TOP, BOTTOM, i32(0), i32(0)
    for i in range(len(current)):
        x = current[i] - anchor[i]
        excess, k3, rho = exponential_parts(x)
        log += x
        third += k3
        linear += excess
        order = bits_in_order(x)
        least, greatest = min(least, order), max(greatest, order)
        above = i32(above + i32((rho > high) & (advantage[i] > ZERO)))
        below = i32(below + i32((rho < low) & (advantage[i] < ZERO)))
    return i32(len(current)), log, third, linear, least, greatest, above, below, i32(0)


@compiled(fastmath=SUMMED)
@no_type_check
def _whole_signs(one, two, three, advantage, bound):
    """Advantages above 0 and below, tokens with a log-prob above a bound, and ΣA, which is finite only if every token has an advantage."""
    up, down, doubtful, total = i32(0), i32(0), i32(0), ZERO
    for i in range(len(one)):
        up = i32(up + i32(advantage[i] > ZERO))
        down = i32(down + i32(advantage[i] < ZERO))
        doubtful = i32(doubtful + i32((one[i] > bound) | (two[i] > bound) | (three[i] > bound)))
        total += advantage[i]
    return up, down, doubtful, total


@compiled()
@no_type_check
def _count_acting(weight):
    number = i32(0)
    for i in range(len(weight)):
        number = i32(number + i32(weight[i] > ZERO))
    return number


@compiled()
@no_type_check
def _signs(one, two, three, given, weight, trained, bound):
    """Trained tokens without an advantage; with a positive one, all and acting; with a negative one; all that act; and those with a
    log-prob above a bound."""
    doubtful, missing, up, up_acts, down, down_acts, acts = i32(0), i32(0), i32(0), i32(0), i32(0), i32(0), i32(0)
    for i in range(len(trained)):
        is_trained, active = trained[i] != 0, weight[i] > ZERO
        value = where_marked(given[i], _finite(given[i]) & -i32(trained[i]))
        missing = i32(missing + i32(is_trained & ((given[i] - given[i]) != ZERO)))
        up = i32(up + i32(value > ZERO))
        up_acts = i32(up_acts + i32((value > ZERO) & active))
        down = i32(down + i32(value < ZERO))
        down_acts = i32(down_acts + i32((value < ZERO) & active))
        acts = i32(acts + i32(active))
        above = (one[i] > bound) | (two[i] > bound) | (three[i] > bound)
        doubtful = i32(doubtful + i32(is_trained & above))
    return missing, up, up_acts, down, down_acts, acts, doubtful


@compiled(fastmath=SUMMED)
@no_type_check
def _advantage_block(given, weight, trained):
    """ΣA of the trained, and of those that act."""
    total = acting = ZERO
    for i in range(len(trained)):
        value = where_marked(given[i], _finite(given[i]) & -i32(trained[i]))
        total += value
        acting += where_marked(value, -i32(weight[i] > ZERO))
    return total, acting


@compiled()
@no_type_check
def clip_sums(policies, advantages, weight, trained, kept, clip, totals):
    """Add what the metrics of a loss are made of to a record `records.CLIP_TOTALS`. `policies`: current log-probs, their anchor, others."""
    current, anchor, others = policies
    total = totals[0]
    for start in range(0, len(current), BLOCK):
        to = min(start + BLOCK, len(current))
        trained_block, kept_block = trained[start:to], kept[start:to]
        if count_bytes(trained_block) == 0:
            continue
        now, then, other = current[start:to], anchor[start:to], others[start:to]
        worth, weights = advantages[start:to], weight[start:to]
        if _add_whole(now, then, other, worth, weights, kept_block, clip[0], total):
            continue
        if count_bytes(kept_block) > 0:
            _add_ratios(_ratio_block(now, then, worth, kept_block, clip[0].low, clip[0].high, clip[0].dual), total)
        signs = _signs(now, then, other, worth, weights, trained_block, clip[0].most_log_prob)
        unvalued, positive, positive_acting, negative, negative_acting, acting, doubtful = signs
        total.unvalued += unvalued
        total.positive += positive
        total.positive_acting += positive_acting
        total.negative += negative
        total.negative_acting += negative_acting
        total.acting += acting
        total.doubtful += doubtful
        advantage, acting_advantage = _advantage_block(worth, weights, trained_block)
        total.advantage += f64(advantage)
        total.acting_advantage += f64(acting_advantage)


@compiled()
@no_type_check
def _add_whole(current, anchor, other, advantage, weight, kept, clip, total):
    """Add a block whose tokens are all kept, weigh something and have an advantage, without a dual bound; False: it is not one."""
    n = len(current)
    if clip.dual < INFINITY or count_bytes(kept) < n or _count_acting(weight) < n:
        return False
    positive, negative, doubtful, advantages = _whole_signs(current, anchor, other, advantage, clip.most_log_prob)
    if advantages - advantages != ZERO:
        return False
    _add_ratios(_whole_ratios(current, anchor, advantage, clip.low, clip.high), total)
    total.doubtful += doubtful
    total.positive += positive
    total.positive_acting += positive
    total.negative += negative
    total.negative_acting += negative
    total.acting += n
    total.advantage += f64(advantages)
    total.acting_advantage += f64(advantages)
    return True


@compiled()
@no_type_check
def _add_ratios(ratios, total):
    """Add what `_ratio_block` found."""
    number, log_rho, k3, excess, least, greatest, above, below, cut = ratios
    total.kept += number
    total.log_rho += f64(log_rho)
    total.k3 += f64(k3)
    total.excess += f64(excess)
    total.max_log_rho = max(total.max_log_rho, f64(float_at(greatest)))
    total.max_minus_log_rho = max(total.max_minus_log_rho, -f64(float_at(least)))
    total.clipped_high += above
    total.clipped_low += below
    total.clipped_dual += cut
