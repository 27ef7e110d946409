"""Whether index t means the same token on both sides: a shift of whole sequences, and text that was cut into tokens again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.audit.causes.evidence import NO_GAP, CauseResult, mean_with_error
from trimtab.audit.causes.mask import filled
from trimtab.audit.causes.sampling import leaves_temperature_out, temperature_fit
from trimtab.audit.gap import Bools, Floats, Gap, Ints

LAGS = (-3, -2, -1, 1, 2, 3)
APART = 0.3
"""Root mean square of ℓ from which a sequence can be out of line at all."""
CLOSER = 0.4
"""A lag fits where it leaves at most this share of the root mean square."""
LEAST_TOKENS = 6
"""Tokens of a sequence, or of its half, under which its lag is not judged."""
MOST_RATIO = 10.0
"""Ratios are cut here before they are averaged: under the sampler's own log-probs the mean is then at most 1, and steady."""
JUMP = 1.0
"""|ℓ| of a token that is plainly not the one that was sampled."""


def shift(gap: Gap) -> CauseResult:
    """Log-probs of one side stand a token or more early or late, in every sequence alike."""
    if not gap.is_open:
        return NO_GAP
    lag, judged = _best_lags(gap, np.ones(len(gap), np.bool_))
    if not judged.any():
        return CauseResult(
            verdict="ruled out",
            statistic=f"No sequence has a root mean square of ℓ above {APART:g}; that of the batch is {gap.rms:.2g}.",
        )
    common = max(LAGS, key=lambda each: int((lag[judged] == each).sum()))
    share = float((lag[judged] == common).mean())
    moved = _at_lag(gap, common)
    statistic = (
        f"{share:.0%} of the sequences fit best with behavior shifted by {common:+d}: the root mean square of ℓ is then "
        f"{moved.rms:.2g} instead of {gap.rms:.2g}."
    )
    if share < 0.5 or moved.rms > CLOSER * gap.rms:
        best = min((_at_lag(gap, each).rms, each) for each in (-1, 1))
        statistic = f"Shifted by {best[1]:+d}, the root mean square of ℓ is {best[0]:.2g}; unshifted, {gap.rms:.2g}."
        return CauseResult(verdict="ruled out", statistic=statistic)
    return CauseResult(
        verdict="found",
        statistic=statistic,
        share=1 - moved.size / gap.size,
        rest=moved,
        remedy=f"Shift the sampler's log-probs by {common:+d}: index t is the log-prob of token t itself, not of the next.",
    )


def retokenised(gap: Gap) -> CauseResult:
    """Text was cut into tokens again: indices slip along the sequence, or single tokens got the log-probs of others."""
    if not gap.is_open:
        return NO_GAP
    slips, many = _slips(gap)
    real = gap.where(~filled(gap))  # numbers that stand for none can make any lag look better
    if slips >= max(3, 0.03 * many) and len(real) and _slips(real)[0] >= max(3, 0.03 * many):
        rest = gap.where(~_drifts(gap))
        rest = replace(rest, blurred=True)
        statistic = f"In {slips:,} of {many:,} sequences the two sides line up at the start, and later only with a lag."
        return CauseResult(
            verdict="found", statistic=statistic, share=1 - rest.size * len(rest) / (gap.size * len(gap)), rest=rest
        )
    return _jumps(gap)


def _slips(gap: Gap) -> tuple[int, int]:
    """Sequences whose second half fits best with another lag than the first, and those long enough to be judged."""
    late = gap.place >= np.maximum(_lengths(gap) // 2, 1)
    early_lag, _ = _best_lags(gap, ~late)
    late_lag, judged = _best_lags(gap, late)
    slips = judged & (late_lag != 0) & (early_lag != late_lag)
    return int(slips.sum()), max(int((_counts(gap) >= 2 * LEAST_TOKENS).sum()), 1)


def _jumps(gap: Gap) -> CauseResult:
    """Few tokens far apart, most of them likelier to the trainer: no sampler that drew them would have called them so rare."""
    real = ~filled(gap)
    part = gap.where(real)
    if not len(part):
        return NO_GAP
    far = np.abs(part.log_r) > JUMP
    held = float(part.k2[far].sum() / max(part.k2.sum(), 1e-300))
    mean, error = mean_with_error(np.minimum(np.exp(part.held), MOST_RATIO), part.sequence)
    edges = float((part.first | part.last)[far].mean()) if far.any() else 0.0
    statistic = (
        f"{far.mean():.2%} of the tokens differ by more than {JUMP:g} and make up {held:.0%} of the gap; {edges:.0%} of them are at "
        f"turn boundaries. The mean ratio, capped at {MOST_RATIO:g} per token, is {mean:.3f} ± {error:.3f}; with the sampler's own "
        "log-probs it is at most 1."
    )
    positive = float((part.log_r[far] > 0).mean()) if far.any() else 0.0
    likely = held > 0.5 and far.mean() < 0.25 and far.sum() >= 5 and positive > 0.6
    if likely and leaves_temperature_out(part, temperature_fit(part.scored, -part.held)):
        likely = False  # a high temperature that behavior leaves out moves rare tokens as far, by a rule that other tokens keep too
    if likely and mean - 1 > max(5 * error, 0.02):
        rest = replace(part.where(~far), blurred=True)
        return CauseResult(
            verdict="found", statistic=statistic, share=1 - rest.size * len(rest) / (gap.size * len(gap)), rest=rest
        )
    return CauseResult(
        verdict="suspected" if likely and mean - 1 > max(3 * error, 0.01) else "ruled out", statistic=statistic
    )


def _counts(gap: Gap) -> Ints:
    return np.bincount(gap.sequence, minlength=int(gap.sequence.max()) + 1)


def _lengths(gap: Gap) -> Ints:
    return _counts(gap)[gap.sequence]


def _neighbours(gap: Gap, lag: int) -> tuple[Bools, Floats]:
    """Where the neighbour at this lag is in the same sequence, and ℓ with its behavior."""
    index = np.arange(len(gap)) + lag
    inside = (index >= 0) & (index < len(gap))
    index = np.clip(index, 0, len(gap) - 1)
    inside &= gap.sequence[index] == gap.sequence
    return inside, np.clip(gap.scored - gap.behavior[index], -10, 10)


def _best_lags(gap: Gap, chosen: Bools) -> tuple[Ints, Bools]:
    """Of each sequence the lag that fits best, 0 unless another is far better; and whether it can be judged."""
    many = int(gap.sequence.max()) + 1
    best = np.full(many, np.inf)
    lag = np.zeros(many, np.int64)
    own, _ = _squares(gap, chosen, np.clip(gap.log_r, -10, 10), many)
    for each in LAGS:
        inside, apart = _neighbours(gap, each)
        found, enough = _squares(gap, chosen & inside, apart, many)
        better = enough & (found < best) & (found < CLOSER**2 * own)
        lag, best = np.where(better, each, lag), np.where(better, found, best)
    _, enough = _squares(gap, chosen, gap.held, many)
    return lag, enough & (own > APART**2)


def _squares(gap: Gap, chosen: Bools, apart: Floats, many: int) -> tuple[Floats, Bools]:
    count = np.bincount(gap.sequence[chosen], minlength=many)
    total = np.bincount(gap.sequence[chosen], apart[chosen] ** 2, many)
    return total / np.maximum(count, 1), count >= LEAST_TOKENS


def _at_lag(gap: Gap, lag: int) -> Gap:
    inside, _ = _neighbours(gap, lag)
    index = np.clip(np.arange(len(gap)) + lag, 0, len(gap) - 1)
    behavior = gap.behavior[index]
    return replace(gap, behavior=behavior, log_r=gap.scored - behavior).where(inside)


def _drifts(gap: Gap) -> Bools:
    """Tokens of sequences that fall out of step anywhere."""
    far = np.bincount(gap.sequence, np.abs(gap.log_r) > JUMP / 2, int(gap.sequence.max()) + 1)
    return (far > 0)[gap.sequence]
