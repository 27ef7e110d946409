# pyright: basic
"""PPO's clip over the tokens of a batch: its sum and its slope in each log-prob, and the sums its metrics are made of.

The formulas are those of `losses/clip.py`, with the slope written out beside the value.
"""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.exponential import exponential_of, exponential_parts
from trimtab.core.fast.machine import (
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
    f32,
    f64,
    float_at,
    i32,
    one_of,
    where_marked,
)
from trimtab.core.fast.tokens import count_bytes

SUMS = 16
FAR, LARGE = f32(20.0), f32(1e15)


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
    """The loss of a token, and its slope in log ρ; `dual` infinite: none."""
    free, fixed = advantage * rho, advantage * between(rho, low, high)
    gain = free if free <= fixed else fixed
    least = -dual * abs(advantage)
    capped = gain < least
    return -least if capped else -gain, where_marked(-free, -i32((free <= fixed) & (not capped)))


@compiled(fastmath=SUMMED)
@no_type_check
def _whole_slopes(current, anchor, advantage, weight, low, high, factor, grad):
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
def _slope_block(current, anchor, given, weight, trained, kept, settings, factor, grad):
    low, high, dual = settings[0], settings[1], settings[2]
    loss, far, large, missing = ZERO, i32(0), i32(0), i32(0)
    for i in range(len(grad)):
        apart, mark = current[i] - anchor[i], -i32(kept[i])
        x, advantage = where_marked(apart, mark), where_marked(given[i], _finite(given[i]) & mark)
        _, _, rho = exponential_parts(x)
        value, slope = _clip(rho, advantage, low, high, dual)
        grad[i] = slope * weight[i] * factor
        loss += value * weight[i]
        far = max(far, i32(f32(x).view(i32) & SIGN))
        large = max(large, i32(f32(advantage).view(i32) & SIGN))
        missing = i32(missing | i32(~_finite(apart) & i32(trained[i])))
    return loss, i32(far).view(f32), i32(large).view(f32), missing


SLOPED, LEFT, MISSING = range(3)
"""What became of a loss: its slope is written, it is left to the plain form, or a trained token lacks a log-prob."""


@compiled()
@no_type_check
def clip_slopes(current, anchor, given, weight, trained, kept, settings, factor, grad, loss):
    """Add the loss to loss[0], and write its slope in each log-prob, times a factor. `settings`: 1 − low, 1 + high, dual."""
    for start in range(0, len(current), BLOCK):
        to = min(start + BLOCK, len(current))
        out, here, stays = grad[start:to], trained[start:to], kept[start:to]
        if count_bytes(here) == 0:
            out[:] = ZERO
            continue
        given_here = current[start:to], anchor[start:to], given[start:to], weight[start:to]
        if settings[2] == INFINITY and count_bytes(stays) == len(stays):
            whole = _whole_slopes(
                given_here[0], given_here[1], given_here[2], given_here[3], settings[0], settings[1], factor, out
            )
            if whole[1] <= FAR and whole[2] <= LARGE:
                loss[0] += f64(whole[0])
                continue
        found = _slope_block(
            given_here[0], given_here[1], given_here[2], given_here[3], here, stays, settings, factor, out
        )
        if found[3] != 0:
            return MISSING
        if found[1] > FAR or found[2] > LARGE:
            return LEFT
        loss[0] += f64(found[0])
    return SLOPED


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
    up, down, doubtful, whole = i32(0), i32(0), i32(0), ZERO
    for i in range(len(one)):
        up = i32(up + i32(advantage[i] > ZERO))
        down = i32(down + i32(advantage[i] < ZERO))
        doubtful = i32(doubtful + i32((one[i] > bound) | (two[i] > bound) | (three[i] > bound)))
        whole += advantage[i]
    return up, down, doubtful, whole


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
        here, active = trained[i] != 0, weight[i] > ZERO
        value = where_marked(given[i], _finite(given[i]) & -i32(trained[i]))
        missing = i32(missing + i32(here & ((given[i] - given[i]) != ZERO)))
        up = i32(up + i32(value > ZERO))
        up_acts = i32(up_acts + i32((value > ZERO) & active))
        down = i32(down + i32(value < ZERO))
        down_acts = i32(down_acts + i32((value < ZERO) & active))
        acts = i32(acts + i32(active))
        above = (one[i] > bound) | (two[i] > bound) | (three[i] > bound)
        doubtful = i32(doubtful + i32(here & above))
    return missing, up, up_acts, down, down_acts, acts, doubtful


@compiled(fastmath=SUMMED)
@no_type_check
def _advantage_block(given, weight, trained):
    """ΣA of the trained, and of those that act."""
    whole = acting = ZERO
    for i in range(len(trained)):
        value = where_marked(given[i], _finite(given[i]) & -i32(trained[i]))
        whole += value
        acting += where_marked(value, -i32(weight[i] > ZERO))
    return whole, acting


@compiled()
@no_type_check
def clip_sums(current, anchor, other, given, weight, trained, kept, settings, sums, tops):
    """What the metrics of a loss are made of.

    `settings`: as of `clip_slopes`, and above which log-prob, of these three, a token is doubtful. `sums`: 0 doubtful, 1 kept,
    2 log ρ, 3 k3, 4 ρ − 1, 5 to 7 clipped high, low and dual, 8 tokens without advantage, 9 to 12 of positive and negative advantage
    (all, acting), 13 acting, 14 ΣA, 15 ΣA of the acting. `tops`: log ρ, −log ρ.
    """
    for start in range(0, len(current), BLOCK):
        to = min(start + BLOCK, len(current))
        if count_bytes(trained[start:to]) == 0:
            continue
        a, b, c = current[start:to], anchor[start:to], other[start:to]
        own, w = given[start:to], weight[start:to]
        if _add_whole(a, b, c, own, w, kept[start:to], settings, sums, tops):
            continue
        if count_bytes(kept[start:to]) > 0:
            ratios = _ratio_block(a, b, own, kept[start:to], settings[0], settings[1], settings[2])
            _add_ratios(ratios, sums, tops)
        signs = _signs(a, b, c, own, w, trained[start:to], settings[3])
        sums[8] += signs[0]
        sums[9] += signs[1]
        sums[10] += signs[2]
        sums[11] += signs[3]
        sums[12] += signs[4]
        sums[13] += signs[5]
        sums[0] += signs[6]
        advantages = _advantage_block(own, w, trained[start:to])
        sums[14] += f64(advantages[0])
        sums[15] += f64(advantages[1])


@compiled()
@no_type_check
def _add_whole(current, anchor, other, advantage, weight, kept, settings, sums, tops):
    """Add a block whose tokens are all kept, weigh something and have an advantage, without a dual bound; False: it is not one."""
    n = len(current)
    if settings[2] < INFINITY or count_bytes(kept) < n or _count_acting(weight) < n:
        return False
    up, down, doubtful, whole = _whole_signs(current, anchor, other, advantage, settings[3])
    if whole - whole != ZERO:
        return False
    _add_ratios(_whole_ratios(current, anchor, advantage, settings[0], settings[1]), sums, tops)
    sums[0] += doubtful
    sums[9] += up
    sums[10] += up
    sums[11] += down
    sums[12] += down
    sums[13] += n
    sums[14] += f64(whole)
    sums[15] += f64(whole)
    return True


@compiled()
@no_type_check
def _add_ratios(ratios, sums, tops):
    """Add what `_ratio_block` found."""
    sums[1] += ratios[0]
    sums[2] += f64(ratios[1])
    sums[3] += f64(ratios[2])
    sums[4] += f64(ratios[3])
    tops[0] = max(tops[0], f64(float_at(ratios[5])))
    tops[1] = max(tops[1], -f64(float_at(ratios[4])))
    sums[5] += ratios[6]
    sums[6] += ratios[7]
    sums[7] += ratios[8]
