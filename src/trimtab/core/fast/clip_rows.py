# pyright: basic
"""PPO's clip over the tokens of a batch: its sum, its slope in each log-prob, and the sums its metrics are made of.

The formulas are those of `losses/clip.py`, with the slope written out beside the value.
"""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.exponential import exponentials
from trimtab.core.fast.machine import ONE, ZERO, compiled, f32, f64, i32, inlined
from trimtab.core.fast.totals import extremes, product_sum, sum_of_chunk

BLOCK, PARTS, SUMS = 1024, 8, 20
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
def _finite_advantages(given, trained, out):
    for i in range(len(out)):
        out[i] = given[i] if (trained[i] != 0) & ((given[i] - given[i]) == ZERO) else ZERO


@compiled()
@no_type_check
def _missing_advantages(given, trained):
    number = i32(0)
    for i in range(len(given)):
        number += i32((trained[i] != 0) & ((given[i] - given[i]) != ZERO))
    return number


@compiled()
@no_type_check
def _kept_ratio(current, anchor, kept, out):
    for i in range(len(out)):
        out[i] = current[i] - anchor[i] if kept[i] != 0 else ZERO


@compiled()
@no_type_check
def _as_marks(flags, out):
    for i in range(len(out)):
        out[i] = ONE if flags[i] != 0 else ZERO


@compiled()
@no_type_check
def _positive_marks(value, out):
    for i in range(len(out)):
        out[i] = ONE if value[i] > ZERO else ZERO


@compiled()
@no_type_check
def _clip(rho, advantage, low, high, dual, value, steep):
    """The loss of each token, and its slope in ρ; `dual` infinite: none."""
    for i in range(len(rho)):
        r, a = rho[i], advantage[i]
        bounded = low if r < low else (high if r > high else r)
        free, fixed = a * r, a * bounded
        gain = free if free <= fixed else fixed
        least = -dual * abs(a)
        capped = gain < least
        value[i] = -least if capped else -gain
        moves = (free <= fixed) | ((r >= low) & (r <= high))
        steep[i] = -a if moves & (not capped) else ZERO


@compiled()
@no_type_check
def _slope(steep, rho, weight, out):
    """In the log-prob, with the correction's weight."""
    for i in range(len(out)):
        out[i] = steep[i] * rho[i] * weight[i]


@compiled()
@no_type_check
def _clip_counts(rho, advantage, marks, low, high, dual):
    """Where the clip takes the gradient away."""
    above, below, cut = i32(0), i32(0), i32(0)
    for i in range(len(rho)):
        above += i32((marks[i] > ZERO) & (rho[i] > high) & (advantage[i] > ZERO))
    for i in range(len(rho)):
        below += i32((marks[i] > ZERO) & (rho[i] < low) & (advantage[i] < ZERO))
    for i in range(len(rho)):
        cut += i32((marks[i] > ZERO) & (rho[i] > dual) & (advantage[i] < ZERO))
    return above, below, cut


@compiled()
@no_type_check
def _selected(advantage, acts):
    """Tokens whose advantage is positive and negative: all of them, and those that act."""
    up, up_acts, down, down_acts = i32(0), i32(0), i32(0), i32(0)
    for i in range(len(acts)):
        up += i32(advantage[i] > ZERO)
        down += i32(advantage[i] < ZERO)
    for i in range(len(acts)):
        up_acts += i32((advantage[i] > ZERO) & (acts[i] > ZERO))
        down_acts += i32((advantage[i] < ZERO) & (acts[i] > ZERO))
    return up, up_acts, down, down_acts


@inlined
@no_type_check
def _of(scratch, part, n):
    start = part * BLOCK
    return scratch[start : start + n]


@compiled()
@no_type_check
def clip_rows(current, anchor, given, weight, trained, kept, settings, scratch, grad, sums, tops):
    """Write the slope of the summed loss in each log-prob. False: a ratio or an advantage too far out for any form but the plain one.

    `settings`: 1 − low, 1 + high, dual. `sums`: 0 loss, 1 kept, 2 log ρ, 3 k3, 4 ρ − 1, 5 to 7 clipped high, low and dual, 8 tokens without
    advantage, 9 to 12 of positive and negative advantage (all, acting), 13 acting, 14 ΣA, 15 ΣA of the acting. `tops`: log ρ, −log ρ.
    """
    low, high, dual = settings[0], settings[1], settings[2]
    for start in range(0, len(current), BLOCK):
        stop = min(start + BLOCK, len(current))
        n = stop - start
        marks, value, steep = _of(scratch, 0, n), _of(scratch, 1, n), _of(scratch, 2, n)
        advantage, log = _of(scratch, 3, n), _of(scratch, 4, n)
        excess, k3, rho = _of(scratch, 5, n), _of(scratch, 6, n), _of(scratch, 7, n)
        _as_marks(kept[start:stop], marks)
        _finite_advantages(given[start:stop], trained[start:stop], advantage)
        _kept_ratio(current[start:stop], anchor[start:stop], kept[start:stop], log)
        least, greatest = extremes(log, marks)
        below, above = extremes(advantage, marks)
        if max(-least, greatest) > FAR or max(-below, above) > LARGE:
            return False
        exponentials(log, excess, k3, rho)
        _clip(rho, advantage, low, high, dual, value, steep)
        _slope(steep, rho, weight[start:stop], grad[start:stop])
        sums[0] += product_sum(value, weight[start:stop])
        sums[1] += sum_of_chunk(marks)
        sums[2] += sum_of_chunk(log)
        sums[3] += sum_of_chunk(k3)
        sums[4] += sum_of_chunk(excess)
        counts = _clip_counts(rho, advantage, marks, low, high, dual)
        sums[5] += counts[0]
        sums[6] += counts[1]
        sums[7] += counts[2]
        sums[8] += _missing_advantages(given[start:stop], trained[start:stop])
        _positive_marks(weight[start:stop], steep)
        counted = _selected(advantage, steep)
        sums[9] += counted[0]
        sums[10] += counted[1]
        sums[11] += counted[2]
        sums[12] += counted[3]
        sums[13] += sum_of_chunk(steep)
        sums[14] += sum_of_chunk(advantage)
        sums[15] += product_sum(advantage, steep)
        tops[0] = max(tops[0], f64(greatest))
        tops[1] = max(tops[1], f64(-least))
    return True


@compiled()
@no_type_check
def mark_positive(values, trained, bound, marked):
    """Mark trained tokens with a log-prob above a bound."""
    for i in range(len(marked)):
        marked[i] |= (trained[i] != 0) & (values[i] > bound)
