# pyright: basic
"""A gate on a chunk of rows: the divergence of its tokens, one statistic per unit, and what those outside of bounds lose."""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.fits import (
    ABS_LOG_RATIO,
    EVERY,
    K1_FORWARD,
    K1_REVERSE,
    K2,
    K3_FORWARD,
    K3_MAX,
    K3_REVERSE,
    MAX,
    MEAN,
    MIN,
    MULT_PROB_ERROR,
    OBSERVE,
    ON_GATHERED,
    ON_TOKENS,
    RATIO,
    RATIO_DEVIATION,
    REJECT,
    SECOND_MOMENT,
    SUM,
    ZERO_OUT,
)
from trimtab.core.fast.loops import (
    BOTTOM,
    HALF,
    INFINITY,
    ONE,
    SUMMED,
    TOP,
    ZERO,
    between,
    bits_in_order,
    compiled,
    count_bytes,
    exponential,
    exponential_of,
    exponentials,
    f32,
    f64,
    float_at,
    gather,
    i32,
    inlined,
    one_of,
    total_of,
    where_marked,
)
from trimtab.core.fast.ratio import are_within

RATIOS, THIRDS, VALUES, HELD, EXCESS, POWERS = range(6)
"""Arrays of scratch: r and k3 of each token, a divergence, and room to work one out in."""


@inlined
@no_type_check
def judge(gate, g, chunk, observes, sums):
    """Take down what gate number g measures in a chunk, and what it turns away. False: a rounding could have decided."""
    x, far, _, trained, kept, _, _, scratch = chunk
    scope, bites = kept if gate.of_kept else trained, gate.limit_at == ON_TOKENS and far > gate.limit
    value = x
    if gate.metric == K3_FORWARD and not bites:
        value = scratch[THIRDS, : len(x)]
    elif bites or gate.sign != 1:
        value = scratch[VALUES, : len(x)]
        divergence(gate.metric, x, gate.limit if bites else INFINITY, scratch, value)
    if gate.by_row:
        return _judge_rows(gate, g, value, scope, bites, chunk, sums)
    _judge_tokens(gate, g, value, scope, bites, chunk, observes, sums)
    return True


@compiled()
@no_type_check
def divergence(metric, x, limit, scratch, out):
    """A divergence of each token by its code, of log-ratios held within ±limit; False: it has no branch here."""
    limited, excess, powers = scratch[HELD, : len(x)], scratch[EXCESS, : len(x)], scratch[POWERS, : len(x)]
    _hold(metric, x, limit, limited)
    if metric in (RATIO, K1_FORWARD, K1_REVERSE, ABS_LOG_RATIO):
        for i in range(len(x)):
            out[i] = limited[i]
    elif metric in (K2, SECOND_MOMENT):
        part = HALF if metric == K2 else ONE
        for i in range(len(x)):
            out[i] = limited[i] * limited[i] * part
    elif metric in (K3_FORWARD, K3_REVERSE, K3_MAX):
        exponentials(limited, excess, out, powers)
    elif metric == RATIO_DEVIATION:
        exponentials(limited, excess, out, powers)
        for i in range(len(x)):
            out[i] = abs(excess[i])
    elif metric == MULT_PROB_ERROR:
        exponentials(limited, excess, powers, out)
    else:
        return False
    return True


@compiled()
@no_type_check
def _hold(metric, x, limit, out):
    """Log-ratios within ±limit, on the side a divergence looks at."""
    side = -ONE if metric in (K1_FORWARD, K3_REVERSE) else ONE
    for i in range(len(x)):
        out[i] = between(x[i], -limit, limit) * side
    if metric in (ABS_LOG_RATIO, K3_MAX, MULT_PROB_ERROR):
        for i in range(len(x)):
            out[i] = abs(out[i])


@inlined
@no_type_check
def statistic(agg, number, total, least, greatest):
    """The least and the greatest of what a gate gathers from a row; NaN: its aggregation has no branch here."""
    if number == 0:
        return ZERO, ZERO
    if agg == MEAN:
        return f32(total / number), f32(total / number)
    if agg == SUM:
        return f32(total), f32(total)
    if agg == MAX:
        return greatest, greatest
    if agg == MIN:
        return least, least
    if agg == EVERY:
        return least, greatest
    return f32(INFINITY - INFINITY), f32(INFINITY - INFINITY)


@inlined
@no_type_check
def _judge_rows(gate, g, value, scope, bites, chunk, sums):
    """A gate on rows. Where the sums of a row say what it measures, its tokens are not looked at."""
    x, far, part, _, kept, acting, inside, _ = chunk
    rows, judged, _, _ = sums
    for r in range(len(rows)):
        low, high, row, judged_row = part[r], part[r + 1], rows[r], judged[r, g]
        is_whole = not bites and (gate.of_kept == 0 or row.kept == row.tokens)
        if is_whole and gate.sign != 0:
            number, total, least, greatest = row.tokens, row.log_r, f32(row.least), f32(row.greatest)
            if gate.sign < 0:
                total, least, greatest = -total, -greatest, -least
        elif is_whole and (gate.agg in (MEAN, SUM)) and gate.metric != MULT_PROB_ERROR:
            number, total, least, greatest = row.tokens, total_of(value[low:high]), ZERO, ZERO  # 0 where none counts
        else:
            number, total, least, greatest = gather(value[low:high], scope[low:high])
        lowest, highest = statistic(gate.agg, number, total, least, greatest)
        if gate.limit_at == ON_GATHERED:
            lowest, highest = between(lowest, -gate.limit, gate.limit), between(highest, -gate.limit, gate.limit)
        if gate.exponential and _is_doubtful(gate, lowest, highest, x[low:high], far, number):
            return False
        passes = lowest >= gate.lower and highest <= gate.upper
        judged_row.tokens, judged_row.least, judged_row.greatest, judged_row.lost = (
            number,
            lowest,
            highest,
            0.0 if passes else number,
        )
        if not passes:
            inside[low:high] = 0
            turn_away(gate.action, inside[low:high], kept[low:high], acting[low:high])
            row.kept = count_bytes(kept[low:high])
    return True


@compiled()
@no_type_check
def _is_doubtful(gate, lowest, highest, x, far, number):
    """Whether the rounding of an exponential could decide: the plain form's own is 1e-7 of each log-ratio, our sums' 4e-6."""
    parts = f32(number) if gate.agg == SUM else ONE
    if not _is_beside(gate, lowest, highest, far * parts):  # a look at the tokens only where it matters
        return False
    if gate.agg not in (MEAN, SUM):
        return True
    total = 0.0
    for i in range(len(x)):
        total += f64(abs(x[i]))
    return _is_beside(gate, lowest, highest, f32(total / max(number, 1.0)) * parts)


@inlined
@no_type_check
def _is_beside(gate, lowest, highest, typical):
    """Whether a statistic of log-ratios of this size lies so near a bound that a rounding could decide."""
    near = False
    for value, bound in ((lowest, gate.lower), (highest, gate.upper)):
        if abs(bound) < INFINITY:
            near |= abs(value - bound) <= f32(4e-7) * typical + f32(8e-6) * abs(bound)
    return near


@inlined
@no_type_check
def _judge_tokens(gate, g, value, scope, bites, chunk, observes, sums):
    """A gate on tokens: what each row loses and, where asked for, the sums of what it measured. A ratio is shown as one."""
    _, _, part, _, kept, acting, inside, scratch = chunk
    rows, _, _, totals = sums
    if gate.metric == RATIO and not bites and _is_whole(gate, rows) and are_within(rows, gate.lower, gate.upper):
        if observes:
            _add_rows(gate, g, sums)
        return
    if not observes:
        fails = _mark_inside(value, gate.lower, gate.upper, inside) < len(value)
    else:
        shown = value
        if gate.metric == RATIO:
            shown = scratch[RATIOS, : len(value)]
            if bites:
                shown = scratch[POWERS, : len(value)]
                exponential(value, shown)
        fails = _add_tokens(gate, value, shown, scope, inside, totals[g])
        _note_lost(gate, g, scope, fails, chunk, sums)
    if fails:
        turn_away(gate.action, inside, kept, acting)
        for r in range(len(rows)):
            rows[r].kept = count_bytes(kept[part[r] : part[r + 1]])


@inlined
@no_type_check
def _note_lost(gate, g, scope, fails, chunk, sums):
    """Take down how many tokens of each row a gate on tokens looked at, and how many it turned away."""
    _, _, part, _, _, _, inside, _ = chunk
    rows, judged, _, _ = sums
    for r in range(len(rows)):
        low, high, judged_row = part[r], part[r + 1], judged[r, g]
        judged_row.tokens, judged_row.lost = rows[r].kept if gate.of_kept else rows[r].tokens, 0.0
        if fails:
            judged_row.lost = judged_row.tokens - _count_both(scope[low:high], inside[low:high])


@inlined
@no_type_check
def _is_whole(gate, rows):
    """Whether a gate looks at all tokens of a row or at none, in each of these rows."""
    if gate.of_kept:
        for r in range(len(rows)):
            if rows[r].kept > 0 and rows[r].kept < rows[r].tokens:
                return False
    return True


@compiled()
@no_type_check
def _add_rows(gate, g, sums):
    """Add what a gate on the ratio measured in rows whose tokens are all inside; the moments of whole rows say it."""
    rows, judged, _, totals = sums
    total = totals[g]
    for r in range(len(rows)):
        row, judged_row = rows[r], judged[r, g]
        judged_row.tokens, judged_row.lost = row.kept if gate.of_kept else row.tokens, 0.0
        if judged_row.tokens == 0:
            continue
        total.units += judged_row.tokens
        total.value += judged_row.tokens + row.excess
        total.squares += judged_row.tokens + 2.0 * row.excess + row.excess_squares
        total.max = max(total.max, f64(exponential_of(f32(row.greatest))))
        total.max_minus = max(total.max_minus, -f64(exponential_of(f32(row.least))))


@compiled()
@no_type_check
def _mark_inside(value, lower, upper, inside):
    """Mark the values inside, and count them."""
    number = i32(0)
    for i in range(len(value)):
        inside[i] = i32((value[i] >= lower) & (value[i] <= upper))
        number = i32(number + i32(inside[i]))
    return number


@inlined
@no_type_check
def _add_tokens(gate, value, shown, scope, inside, total):
    """Mark the values inside, and add what a gate measured to its sums; whether any in scope is outside."""
    number, above, below, first, second, least, greatest = _test(value, shown, scope, gate.lower, gate.upper, inside)
    total.above += above
    total.below += below
    total.units += number
    total.value += first
    total.squares += second
    total.max, total.max_minus = max(total.max, f64(greatest)), max(total.max_minus, -f64(least))
    return above + below > 0


@compiled(fastmath=SUMMED)
@no_type_check
def _test(value, shown, scope, lower, upper, inside):
    """Mark the values inside; of those in scope: number, above, below, Σ, Σ², least and greatest as they are shown."""
    number, above, below, first, second, low, high = i32(0), i32(0), i32(0), 0.0, 0.0, TOP, BOTTOM
    for i in range(len(value)):
        mark, beyond, short = -i32(scope[i]), value[i] > upper, value[i] < lower
        inside[i] = i32(not (beyond | short))
        number = i32(number - mark)
        above, below = i32(above + i32(i32(beyond) & mark)), i32(below + i32(i32(short) & mark))
        seen, order = where_marked(shown[i], mark), bits_in_order(shown[i])
        first += f64(seen)
        second += f64(seen) * f64(seen)
        low, high = min(low, one_of(mark, order, TOP)), max(high, one_of(mark, order, BOTTOM))
    return f64(number), above, below, first, second, float_at(low), float_at(high)


@compiled()
@no_type_check
def turn_away(action, inside, kept, acting):
    """Take what is not inside out of what is kept, or out of what acts; False: the action has no branch here."""
    if action == REJECT:
        for i in range(len(kept)):
            kept[i] = kept[i] & inside[i]
    elif action == ZERO_OUT:
        for i in range(len(acting)):
            acting[i] = acting[i] & inside[i]
    else:
        return action == OBSERVE
    return True


@compiled()
@no_type_check
def _count_both(one, two):
    number = i32(0)
    for i in range(len(one)):
        number = i32(number + i32(one[i] & two[i]))
    return number
