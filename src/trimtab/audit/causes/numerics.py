"""What is left: noise of the trainer itself, heavy tails, and a bias that no other cause explains; `precision` is beside."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab.audit.causes.evidence import BLURRED, NO_GAP, CauseResult, inconclusive
from trimtab.audit.gap import FLOOR, Gap

HEAVY = 0.3
"""Median over root mean square of |ℓ| among tokens of like probability: 0.67 for a normal distribution, 0 for rare jumps."""
CARRIED = 0.9
"""Share of the variance of sequence means that must not average out for a bias. Weights rounded to few bits carry up to 0.75 where
planted, and that is noise; an offset of each sequence carries all of it."""
SURE = 8.0
"""Standard errors from which it is no accident."""


def trainer(gap: Gap) -> CauseResult:
    """Two scorings of the same tokens by the same weights differ: the trainer's own recomputation is noisy."""
    if not gap.is_open:
        return NO_GAP
    if gap.second is None:
        return inconclusive("a second scoring by the same weights (--model twice)")
    both = np.isfinite(gap.second)
    apart = np.clip((gap.scored - gap.second)[both], -10, 10)
    noise = float((apart**2).mean()) / 4 if both.any() else 0.0  # each scoring has half of their variance
    share = min(1.0, noise / gap.size)
    statistic = (
        f"The two scorings are {np.sqrt(4 * noise):.2g} apart (root mean square); half of that variance is {share:.0%} "
        "of the variance of the gap to the sampler."
    )
    if np.sqrt(2 * noise) > FLOOR and share > 0.3:
        return CauseResult(verdict="found", statistic=statistic, share=share, rest=replace(gap, blurred=True))
    return CauseResult(verdict="suspected" if share > 0.1 else "ruled out", statistic=statistic)


def tails(gap: Gap) -> CauseResult:
    """Few tokens jump while most agree: experts that a router chose otherwise, or another rare event."""
    if not gap.is_open:
        return NO_GAP
    if gap.blurred:
        return BLURRED
    weight = _weight(gap)
    order = np.sort(gap.k2)[::-1]
    most = float(order[: max(1, len(order) // 100)].sum() / order.sum())
    statistic = (
        f"Among tokens of similar probability the median of |ℓ| is {weight:.2f} of its root mean square (0.67 for a normal "
        f"distribution); the top 1 % of the tokens make up {most:.0%} of the gap."
    )
    if weight < HEAVY:
        rest = gap.where(np.abs(gap.evened) < 1)
        return CauseResult(
            verdict="found", statistic=statistic, share=1 - rest.size * len(rest) / (gap.size * len(gap)), rest=rest
        )
    return CauseResult(verdict="suspected" if weight < 1.3 * HEAVY else "ruled out", statistic=statistic)


def _weight(gap: Gap) -> float:
    """Median over root mean square, in the sequences that are apart at all: a whole sequence is no jump."""
    squares = gap.evened**2
    _, owner, count = np.unique(gap.sequence, return_inverse=True, return_counts=True)
    own = np.bincount(owner, squares) / count
    values = np.abs(gap.evened[(own > 0.1 * squares.mean())[owner]])
    return float(np.median(values) / max(np.sqrt((values**2).mean()), 1e-12))


@dataclass(frozen=True)
class BiasMeasure:
    """How sequence means behave against the 1/√T law."""

    spread: float
    """Standard deviation of the sequence means."""
    expected: float
    """What independent tokens of that spread would give."""
    carried: float
    """Share of the variance of a sequence mean that does not average out."""
    z: float


def bias_measure(gap: Gap) -> BiasMeasure:
    """Variance of sequence means against that of tokens over T.

    Independent tokens of variance v in sequences of T: means vary by v / T. What is beyond that is the same for a whole sequence.
    """
    _, owner, count = np.unique(gap.sequence, return_inverse=True, return_counts=True)
    values = gap.evened
    means = np.bincount(owner, values) / count
    within = np.bincount(owner, (values - means[owner]) ** 2) / np.maximum(count - 1, 1)
    enough = count >= 8
    if enough.sum() < 8:
        return BiasMeasure(0.0, 0.0, 0.0, 0.0)
    expected = within[enough] / count[enough]
    found = (means[enough] - np.average(values)) ** 2
    ratio = float(found.mean() / max(expected.mean(), 1e-300))
    z = (ratio - 1) / np.sqrt(2 / enough.sum())
    return BiasMeasure(
        float(np.sqrt(found.mean())), float(np.sqrt(expected.mean())), max(0.0, 1 - 1 / max(ratio, 1e-9)), float(z)
    )


def bias(gap: Gap) -> CauseResult:
    """Independent noise averages out as 1/√T over a sequence; what does not is a bias."""
    if not gap.is_open:
        return NO_GAP
    found = bias_measure(gap)
    if not found.expected:
        return inconclusive("eight sequences of at least eight tokens")
    statistic = (
        f"Sequence means of ℓ spread {found.spread / found.expected:.1f} times as far as independent tokens would: {found.carried:.0%} of "
        f"their variance does not average out with length ({found.z:.1f} standard errors)."
    )
    if gap.blurred:
        return replace(BLURRED, statistic=statistic)
    if found.z > SURE and found.carried > CARRIED:
        return CauseResult(verdict="suspected", statistic=statistic, share=found.carried)
    return CauseResult(verdict="ruled out", statistic=statistic)
