# pyright: basic
"""A correction and PPO's clip behind it, chunk by chunk while it lies in the cache: of the tokens nothing is written but the slope.

log-probs ─► decide_chunk ─► weight, kept of a chunk (scratch) ─► clip_slopes ─► slope of each log-prob
"""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.clip_rows import SLOPED, clip_slopes
from trimtab.core.fast.machine import ZERO, compiled
from trimtab.core.fast.places import DONE
from trimtab.core.fast.rows import decide_chunk, end_of_chunk, row_ends
from trimtab.core.fast.tokens import count_bytes, last_counted

UNDECIDED = 3
"""A row that has to be decided with a look at its tokens, or by the plain form; else what became of it is said as by `clip_slopes`."""


@compiled()
@no_type_check
def count_rows(mask, offsets, out):
    """How many tokens of each row are marked."""
    for row in range(len(out)):
        out[row] = count_bytes(mask[offsets[row] : offsets[row + 1]])


@compiled()
@no_type_check
def scale_in_place(values, factor):
    """Multiply in place."""
    for i in range(len(values)):
        values[i] *= factor


@compiled()
@no_type_check
def slope_rows(
    a,
    b,
    mask,
    offsets,
    gates,
    bounds,
    weighs,
    limits,
    plan,
    scratch,
    ends,
    numbers,
    marks,
    rows,
    sums,
    tops,
    clipped,
    settings,
    factor,
    loss,
):
    """Run a program that goes by rows, without moments. `clipped`: current log-probs, their anchor, advantages, and where slopes go.

    `numbers` and `marks`: two arrays each, as long as the longest chunk. The loss is added to loss[0].
    """
    current, anchor, advantages, grad = clipped
    first, number = 0, len(offsets) - 1
    while first < number:
        start, last = offsets[first], end_of_chunk(offsets, first)
        stop = start + last_counted(mask[start : offsets[last]])
        grad[stop : offsets[last]] = ZERO
        part, own, n = row_ends(offsets, first, last, stop, ends), rows[first:last], stop - start
        given = a[start:stop], b[start:stop], mask[start:stop]
        tokens = numbers[0, :n], marks[0, :n], marks[1, :n], numbers[1, :n]
        if decide_chunk(given, part, tokens, gates, bounds, weighs, limits, plan, scratch, own, sums, tops) != DONE:
            return UNDECIDED
        now, then, worth, out = current[start:stop], anchor[start:stop], advantages[start:stop], grad[start:stop]
        state = clip_slopes(now, then, worth, tokens[3], tokens[1], tokens[2], settings, factor, out, loss)
        if state != SLOPED:
            return state
        first = last
    return SLOPED
