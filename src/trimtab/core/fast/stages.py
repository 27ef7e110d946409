# pyright: basic
"""The pass: chunks of whole rows go through four stages while they lie in the cache, one loop over the tokens each.

    log-probs ─► split: ℓ, trained ─► measure: exponentials, moments ─► judge: each gate in order ─► weigh: weights and their sums

Padded rows and packed sequences are one thing here: rows that lie between offsets. `given` are log-probs of both policies and the mask,
`tokens` where log-ratios, weights, trained and kept go, `sums` the records of `records.fresh_sums`.
"""

from __future__ import annotations

import math
from typing import no_type_check

from trimtab.core.fast.fits import K3_FORWARD, RATIO
from trimtab.core.fast.gate import RATIOS, THIRDS, VALUES, divergence, judge, statistic, turn_away
from trimtab.core.fast.loops import ZERO, compiled, f32, f64, inlined, last_counted, ratios_and_k3
from trimtab.core.fast.ratio import measure_rows, positive_tokens, split
from trimtab.core.fast.weight import LOG_MOST, gathered, weigh
from trimtab.core.sums import LIMIT, MOST

CHUNK = 2048
"""Tokens (and rows) of a chunk of short rows; a longer row is a chunk of its own."""
SCRATCH, FLAGS = 6, 2
"""Numbers and flags of scratch for each token of a chunk."""
FAR, HUGE = f32(LIMIT), f32(80.0)
"""A log-ratio and a log-prob beyond which the plain form decides."""


@compiled()
@no_type_check
def longest_chunk(offsets):
    """How many tokens scratch has to hold."""
    longest = 0
    for row in range(len(offsets) - 1):
        longest = max(longest, offsets[row + 1] - offsets[row])
    return max(longest, CHUNK)


@compiled()
@no_type_check
def decide_rows(given, offsets, tokens, rule, room, sums):
    """Run a rule over all rows; False: this batch holds numbers that only the plain form may judge."""
    target, base, mask = given
    log_r, weights, trained, kept = tokens
    rows, judged, totals, of_gates = sums
    first, number = 0, len(offsets) - 1
    while first < number:
        start, last = offsets[first], end_of_chunk(offsets, first)
        end = offsets[last]
        stop = start + last_counted(mask[start:end])
        log_r[stop:end], weights[stop:end], trained[stop:end], kept[stop:end] = ZERO, ZERO, 0, 0
        chunk = target[start:stop], base[start:stop], mask[start:stop]
        out = log_r[start:stop], weights[start:stop], trained[start:stop], kept[start:stop]
        part = row_ends(offsets, first, last, stop, room)
        if not decide_chunk(chunk, part, out, rule, room, (rows[first:last], judged[first:last], totals, of_gates)):
            return False
        first = last
    gates, _, _ = rule
    finish(rows, judged, gates, totals, of_gates)
    return True


@inlined
@no_type_check
def end_of_chunk(offsets, first):
    """One past the last row of the chunk that starts with a row."""
    last, start = first + 1, offsets[first]
    while last < len(offsets) - 1 and offsets[last + 1] - start <= CHUNK and last - first < CHUNK:
        last += 1
    return last


@inlined
@no_type_check
def row_ends(offsets, first, last, stop, room):
    """Where the rows of a chunk begin and end in it, less the padding behind `stop`."""
    _, _, ends = room
    for row in range(first, last + 1):
        ends[row - first] = min(offsets[row], stop) - offsets[first]
    return ends[: last - first + 1]


@compiled()
@no_type_check
def decide_chunk(given, part, tokens, rule, room, sums):
    """The four stages for the rows of a chunk, which lie between the offsets `part`. Without moments where they are not asked for."""
    x, out, trained, kept = tokens
    gates, weight, observes = rule
    scratch, flags, _ = room
    target, base, _ = given
    rows, _, totals, _ = sums
    far, most = split(given, part, tokens, rows, totals[0])
    if far > FAR or most > HUGE:
        return False
    n = len(x)
    acting, inside = flags[0, :n], flags[1, :n]
    acting[:] = 1
    if observes:
        totals[0].doubtful += positive_tokens(target, base, trained, most)
        out_of = scratch[VALUES, :n], scratch[RATIOS, :n], scratch[THIRDS, :n]
        measure_rows(x, base, far, part, out_of, rows, totals[0])
    elif _needs_k3(gates):
        ratios_and_k3(x, scratch[RATIOS, :n], scratch[THIRDS, :n])
    chunk = x, far, part, trained, kept, acting, inside, scratch
    for g in range(len(gates)):
        if not judge(gates[g], g, chunk, observes, sums):
            return False
    return weigh(weight[0], chunk, out, observes, sums)


@inlined
@no_type_check
def _needs_k3(gates):
    """Whether a gate gathers k3."""
    needed = False
    for gate in gates:
        needed |= gate.metric == K3_FORWARD
    return needed


@compiled()
@no_type_check
def has_branches(gate, weight, scratch, flags):
    """Whether every code of a gate and of the weight has a branch, tried on one token."""
    one = flags[0]
    if not divergence(gate.metric, scratch[RATIOS], f32(1.0), scratch, scratch[VALUES]):
        return False
    low, _ = statistic(gate.agg, 1.0, 0.0, ZERO, ZERO)
    log = gathered(weight.level, 0.0, 1.0)
    return turn_away(gate.action, one, flags[1], flags[2]) and low == low and log == log


@compiled()
@no_type_check
def finish(rows, judged, gates, totals, of_gates):
    """Add what stands in each row: sequences, perplexities, and what each gate measured and turned away."""
    total = totals[0]
    for row in rows:
        if row.tokens == 0:
            continue
        base, apart = row.log_base / row.tokens, row.log_r / row.tokens
        total.rows += 1.0
        total.kept_rows += 1.0 if row.kept > 0 else 0.0
        total.perplexity_behavior += math.exp(min(-base, LOG_MOST))
        total.perplexity_target += math.exp(min(-base - apart, LOG_MOST))
        total.perplexity_ratio += math.exp(min(-apart, LOG_MOST))
        total.log_diff -= apart
        total.log_diff_abs += abs(apart)
        total.chi2_sequence += math.expm1(2 * min(max(row.log_r, -LIMIT), LIMIT))
        total.max_log_diff = max(total.max_log_diff, -f32(apart))
        total.max_minus_log_diff = max(total.max_minus_log_diff, f32(apart))
    for g in range(len(gates)):
        for r in range(len(rows)):
            if judged[r, g].tokens > 0:
                _finish_gate(judged[r, g], gates[g], of_gates[g])


@inlined
@no_type_check
def _finish_gate(judged_row, gate, total):
    """Add what a gate turned away in a row; of a gate on rows, what it measured there."""
    total.tokens += judged_row.tokens
    total.lost += judged_row.lost
    total.rows += 1.0
    total.lost_rows += 1.0 if judged_row.lost == judged_row.tokens else 0.0
    if gate.by_row:
        value = f64(shown(judged_row, gate))
        total.above += judged_row.lost if judged_row.greatest > gate.upper else 0.0
        total.below += judged_row.lost if judged_row.least < gate.lower else 0.0
        total.units += 1.0
        total.value += value
        total.squares += value * value
        total.max, total.max_minus = max(total.max, value), max(total.max_minus, -value)


@compiled()
@no_type_check
def shown(judged_row, gate):
    """What a gate measured in a row, as it is reported: the side outside, else the one farther from neutral."""
    beyond, short = judged_row.greatest > gate.upper, judged_row.least < gate.lower
    value = (
        judged_row.greatest
        if (judged_row.greatest >= -judged_row.least if beyond == short else beyond)
        else judged_row.least
    )
    if gate.metric == RATIO:
        return f32(math.exp(min(max(value, -LIMIT), LIMIT)))
    return f32(min(max(value, -MOST), MOST))
