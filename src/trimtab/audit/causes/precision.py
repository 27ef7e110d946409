"""Which precision the sampler runs in, by its fingerprint: whether its errors repeat, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab.audit.causes.evidence import BLURRED, NO_GAP, CauseResult
from trimtab.audit.gap import Gap

SMALL_RMS = 2e-3
"""Root mean square of ℓ under which it is fp16 or int8 that is told apart, above which bf16 or fp8 and int4."""
REPEATS = (1 / 3, 0.15)
"""Share of ℓ² that repeats from which weights were rounded, under `SMALL_RMS` and above. Seeds from 100: fp16 up to 0.25, int8 from 0.55;
bf16 up to 0.08, fp8 from 0.45, int4 from 0.23."""
LEAST_PAIRS = 300
"""Tokens with a fellow in another sequence under which nothing is said of repeats."""
SIZES = {
    "activations": (("fp16", 6.5e-4), ("bf16", 5.2e-3)),
    "weights": (("int8", 1.6e-3), ("fp8", 6.5e-3), ("int4", 2.6e-2)),
}
"""What is rounded, and the root mean square of ℓ it gave on small models; billions of parameters give about five times as much."""


@dataclass(frozen=True)
class Fingerprint:
    """What the errors of a sampler look like."""

    repeats: float | None
    """Share of ℓ² that is the same wherever a token follows the same other token; None where too few do."""
    rounded: str | None
    """`activations` (16 bits) or `weights` (fewer bits, computed in more); None where it is not known."""
    nearest: str | None
    """The precision with that fingerprint that is nearest in size; None without one: in size alone fp16 of one model is bf16 of another."""


def precision_fingerprint(gap: Gap) -> Fingerprint:
    """The sampler's precision.

    A rounded weight errs in the same way each time it is used, a rounded activation anew in each context: where one token follows
    another, the first errors repeat from sequence to sequence, and the second average out.
    """
    repeats = repeated_share(gap)
    least = REPEATS[gap.rms >= SMALL_RMS]
    rounded = None if repeats is None else "weights" if repeats > least else "activations"
    known = SIZES.get(rounded or "", ())
    nearest = min(known, key=lambda each: abs(np.log(each[1] / gap.rms)), default=None)
    return Fingerprint(repeats, rounded, None if nearest is None else nearest[0])


def repeated_share(gap: Gap) -> float | None:
    """Mean product of two ℓ of the same pair of tokens in two sequences, over the mean square, each ℓ over that of its probability.

    One pair with 1, 1 and −1 in three sequences: products 1, −1, −1 of 1, so −1/3. All alike: 1.
    """
    if gap.tokens is None or gap.before is None or not len(gap):
        return None
    _, pair = np.unique((gap.before + 1) * (gap.tokens.max() + 1) + gap.tokens, return_inverse=True)
    many = int(gap.sequence.max()) + 1
    cells, cell = np.unique(pair.astype(np.int64) * many + gap.sequence, return_inverse=True)
    total, count = np.bincount(cell, gap.evened), np.bincount(cell).astype(np.float64)
    sums, counts, squares, own = (np.bincount(cells // many, each) for each in (total, count, total**2, count**2))
    fellows = counts**2 - own  # ordered pairs of two sequences
    met = fellows > 0
    if counts[met].sum() < LEAST_PAIRS:
        return None
    product = (sums**2 - squares)[met] / fellows[met]
    return float(np.average(product, weights=counts[met]) / (gap.evened**2).mean())


def precision(gap: Gap) -> CauseResult:
    """The sampler computes in fewer bits: small, independent noise on every token, larger on rare ones."""
    if not gap.is_open:
        return NO_GAP
    if gap.blurred:
        return BLURRED
    rare, usual = (gap.where(chosen) for chosen in (gap.behavior < np.log(0.1), gap.behavior > np.log(0.5)))
    statistic = (
        f"Root mean square of ℓ is {gap.rms:.2g}, {rare.rms:.2g} on tokens of probability under 0.1 and {usual.rms:.2g} on those over 0.5. "
        f"{_words(precision_fingerprint(gap))}{_grid(gap)}."
    )
    if gap.age is None or not (gap.age >= 0).any():
        return CauseResult(
            verdict="suspected",
            statistic=statistic,
            share=1.0,
            lacks="versions, to tell low precision from old weights",
        )
    if (gap.age > 0).all():
        return CauseResult(
            verdict="suspected",
            statistic=statistic,
            share=1.0,
            lacks="fresh tokens, to tell low precision from old weights",
        )
    return CauseResult(verdict="found", statistic=statistic, share=1.0, rest=gap)


def _words(found: Fingerprint) -> str:
    if found.repeats is None:
        return (
            "Too few pairs of tokens occur in several sequences to tell 16-bit activations from weights of 8 bits or fewer; the size "
            "of the gap alone does not, as it grows with the model"
        )
    seen = f"Where a pair of tokens occurs in several sequences, {max(found.repeats, 0):.0%} of the gap repeats"
    if found.rounded == "weights":
        return f"{seen}, as with weights of 8 bits or fewer; nearest in size on a small model: {found.nearest}"
    return f"{seen}, as with 16-bit activations; nearest in size on a small model: {found.nearest}"


def _grid(gap: Gap) -> str:
    """Whether the sampler's log-probs themselves stand on the grid of a 16-bit type."""
    bits = gap.behavior.astype(np.float32).view(np.uint32)
    if len(bits) and ((bits & 0xFFFF) == 0).all():
        return "; the sampler's log-probs themselves are rounded to bf16"
    if len(bits) and (gap.behavior.astype(np.float16).astype(np.float64) == gap.behavior).all():
        return "; the sampler's log-probs themselves are rounded to fp16"
    return ""
