"""Whose tokens are apart: those of one engine, of old weights, of weights older than they say, of a stale or cut cache."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np

from trimtab.audit.causes.evidence import BLURRED, NO_GAP, CauseResult, inconclusive, rank_correlation, sequence_means
from trimtab.audit.gap import FLOOR, Floats, Gap, Ints

TREND_ERRORS = 5.0
"""Standard errors from which a trend is no chance."""
TIMES = 2.0
"""How many times the gap has to grow."""
FEWEST = 4
"""Sequences of a class under which it is not judged."""


def _by_sequence(gap: Gap, column: Ints) -> tuple[Floats, Floats]:
    """Mean k2 and mean of a column of each sequence."""
    return sequence_means(gap.k2, gap.sequence), sequence_means(column.astype(np.float64), gap.sequence)


def _levels(gap: Gap) -> Floats:
    """Logarithm of the mean k2 of each sequence, nothing under the floor told apart."""
    return np.log(sequence_means(gap.k2, gap.sequence) + FLOOR**2)


def _apart(one: Floats, other: Floats) -> float:
    """How many standard errors lie between the means of two samples."""
    if min(len(one), len(other)) < FEWEST:
        return 0.0
    error = np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other))
    return float((one.mean() - other.mean()) / max(error, 1e-9))


def bad_source(gap: Gap) -> CauseResult:
    """One engine, rank or shard is further apart than all others."""
    if not gap.is_open:
        return NO_GAP
    if gap.source is None or len(gap.sources) < 2:
        return inconclusive("the engine, rank or shard of each sequence")
    levels, owner = _levels(gap), sequence_means(gap.source.astype(np.float64), gap.sequence)
    names, spreads = [], list[tuple[float, float, int]]()
    for each in np.unique(owner):
        here = levels[owner == each]
        if len(here) >= FEWEST:
            names.append(int(each))
            spreads.append((float(here.mean()), float(here.var(ddof=1)) / len(here), len(here)))
    if len(names) < 2:
        return inconclusive("several sequences of each engine")
    worst = int(np.argmax([each[0] for each in spreads]))
    others = levels[(owner != names[worst])]
    apart = spreads[worst][0] - float(others.mean())
    z = apart / np.sqrt(spreads[worst][1] + float(others.var(ddof=1)) / len(others) + 1e-12)
    # The others among themselves: where they differ as much, it is not one of them.
    rivals = [each[0] for place, each in enumerate(spreads) if place != worst]
    rest = gap.where(gap.source != names[worst])
    statistic = (
        f"Mean k2 is {gap.where(gap.source == names[worst]).size:.2g} for {gap.sources[names[worst]]} and {rest.size:.2g} for the "
        f"others ({z:.1f} standard errors apart on a log scale)."
    )
    alone = apart > 2 * (max(rivals) - min(rivals)) if len(rivals) > 1 else True
    if z > TREND_ERRORS and apart > np.log(TIMES) and alone and gap.size > TIMES / 1.5 * rest.size:
        return CauseResult(
            verdict="found",
            statistic=statistic,
            rest=rest,
            share=1 - rest.size * len(rest) / (gap.size * len(gap)),
            remedy=f"Look at {gap.sources[names[worst]]}: its weights, its precision and its version of the engine.",
        )
    return CauseResult(
        verdict="suspected" if z > TREND_ERRORS and apart > np.log(1.5) else "ruled out", statistic=statistic
    )


def stale(gap: Gap) -> CauseResult:
    """The weights that sampled are older than those that score: the gap grows with the age of the token."""
    if not gap.is_open:
        return NO_GAP
    if gap.age is None or not (gap.age >= 0).any():
        return inconclusive("the version of the weights that sampled each token")
    known = gap.where(gap.age >= 0)
    assert known.age is not None
    youngest, oldest = int(known.age.min()), int(known.age.max())
    if youngest == oldest:
        if youngest == 0:
            return CauseResult(
                verdict="ruled out", statistic="Every token was sampled by the weights that score it (age 0)."
            )
        return CauseResult(
            verdict="suspected",
            statistic=f"Every token is {youngest} versions old; there are no younger ones to compare with.",
            lacks="tokens of several ages",
        )
    size, age = _by_sequence(known, known.age)
    fresh = known.where(known.age == youngest)
    eldest = known.where(known.age > (youngest + oldest) / 2)
    rho, trend = rank_correlation(size, age)
    z = max(trend, _apart(_levels(eldest), _levels(fresh)))
    statistic = (
        f"Mean k2 is {fresh.size:.2g} at age {youngest} and {eldest.size:.2g} above age {(youngest + oldest) / 2:g} "
        f"(rank correlation {rho:.2f}, {z:.1f} standard errors)."
    )
    if z > TREND_ERRORS and eldest.size > TIMES * fresh.size:
        share = 1 - min(1.0, fresh.size / gap.size)
        return CauseResult(verdict="found", statistic=statistic, share=share, rest=fresh)
    return CauseResult(
        verdict="suspected" if z > 3 and eldest.size > 1.3 * fresh.size else "ruled out", statistic=statistic
    )


def versions(gap: Gap) -> CauseResult:
    """The gap grows from step to step though the tokens say that they are as fresh as ever: weights do not arrive."""
    if not gap.is_open:
        return NO_GAP
    if gap.age is None or gap.step is None:
        return inconclusive("the version of each token and the step of each sequence")
    known = _of_commonest_age(gap.where(gap.age >= 0))
    if not len(known) or known.step is None or np.ptp(known.step) == 0:
        return inconclusive(
            "a batch of several steps",
            "All tokens of one age come from one step, so that a gap that grows over steps would not show.",
        )
    size, step = _by_sequence(known, known.step)
    low, high = np.quantile(step, [1 / 3, 2 / 3])
    early, late = known.where(known.step <= low), known.where(known.step >= high)
    rho, trend = rank_correlation(size, step)
    z = max(trend, _apart(_levels(late), _levels(early)))
    statistic = (
        f"Mean k2 of tokens of the same age is {early.size:.2g} in the first third of the steps and {late.size:.2g} in the last "
        f"(rank correlation {rho:.2f}, {z:.1f} standard errors)."
    )
    if z > TREND_ERRORS and late.size > TIMES * early.size:
        share = 1 - min(1.0, early.size / gap.size)
        return CauseResult(verdict="found", statistic=statistic, share=share, rest=replace(early, blurred=True))
    return CauseResult(
        verdict="suspected" if z > 3 and late.size > 1.5 * early.size else "ruled out", statistic=statistic
    )


def _of_commonest_age(gap: Gap) -> Gap:
    """Its tokens of one age: others are further apart for being older."""
    ages = cast("Ints", gap.age)
    return gap.where(ages == np.bincount(ages).argmax()) if len(ages) else gap


def stale_cache(gap: Gap) -> CauseResult:
    """The gap grows or fades along the response among tokens of like probability: old keys and values, or a context that is cut."""
    if not gap.is_open:
        return NO_GAP
    if gap.blurred:
        return BLURRED
    early, late = _thirds(gap)
    far = (early + late) > 0.1 * (early + late).mean() if len(early) else np.empty(0, np.bool_)
    if far.sum() < 2 * FEWEST:
        return inconclusive("sequences of at least 12 tokens")
    lean = (late - early)[far] / (late + early)[far]  # −1: all of it early; 1: all of it late
    z = float(lean.mean() / max(lean.std(ddof=1) / np.sqrt(len(lean)), 1e-9))
    first, last = float(early.mean()), float(late.mean())
    grows = last > first
    times = max(first, last) / max(min(first, last), 1e-12)
    statistic = (
        f"Against tokens of similar probability, squared ℓ is {first:.2g} times the usual in the first third of responses and "
        f"{last:.2g} times in the last ({abs(z):.1f} standard errors apart)."
    )
    if abs(z) > TREND_ERRORS and times > TIMES and (z > 0) == grows:
        remedy = (
            "Look at what changes with length: a sliding window, cache eviction, position encoding, a cache of low precision."
            if grows
            else "Reset the prefix cache when weights change: the prompts' keys and values come from older weights."
        )
        share = float(1 - min(1.0, min(first, last) / np.mean(gap.evened**2)))
        return CauseResult(
            verdict="found", statistic=statistic, share=share, remedy=remedy, rest=replace(gap, blurred=True)
        )
    return CauseResult(
        verdict="suspected" if abs(z) > TREND_ERRORS and times > 1.5 else "ruled out", statistic=statistic
    )


def _thirds(gap: Gap) -> tuple[Floats, Floats]:
    """Mean square of the evened ℓ in the first and in the last third of each sequence of at least 12 tokens."""
    _, owner, count = np.unique(gap.sequence, return_inverse=True, return_counts=True)
    starts = np.cumsum(count) - count
    part = (np.arange(len(gap)) - starts[owner]) / count[owner]
    long = count >= 12
    squares = gap.evened**2
    found = [
        np.bincount(owner[here], squares[here], len(count))
        / np.maximum(np.bincount(owner[here], minlength=len(count)), 1)
        for here in (part < 1 / 3, part >= 2 / 3)
    ]
    return found[0][long], found[1][long]
