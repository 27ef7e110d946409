"""Two scorings of the same tokens held against each other: a gate before the first step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import InputError
from trimtab.records.saved import SavedBatch

BAND = (0.9, 1.1)
"""Ratios within which a token agrees."""


@dataclass(frozen=True)
class ParityResult:
    """How far two scorings are apart."""

    tokens: int
    k3: float
    """Mean of r − 1 − ℓ."""
    outside: float
    """Share of trained tokens whose ratio is outside `BAND`, or that only one side has."""
    worst: float
    """Largest |ℓ|."""
    unmatched: int
    """Trained tokens that only one side has."""

    def passes(self, max_k3: float, max_outside: float) -> bool:
        """Whether both are within their bounds; a number that is none is not."""
        return self.tokens > 0 and self.k3 <= max_k3 and self.outside <= max_outside


def parity_of(one: NDArray[Any], other: NDArray[Any], trained: NDArray[np.bool_]) -> ParityResult:
    """Parity of two columns of log-probs, token by token."""
    known = np.isfinite(one) & np.isfinite(other) & trained
    apart = one[known].astype(np.float64) - other[known].astype(np.float64)
    log_r = np.clip(apart, -20, 20)
    ratio = np.exp(log_r)
    unmatched = int((trained & (np.isfinite(one) != np.isfinite(other))).sum())
    if not len(log_r):
        return ParityResult(0, float("nan"), float("nan"), float("nan"), unmatched)
    outside = (int(((ratio < BAND[0]) | (ratio > BAND[1])).sum()) + unmatched) / (len(log_r) + unmatched)
    return ParityResult(
        len(log_r), float((np.expm1(log_r) - log_r).mean()), outside, float(np.abs(apart).max()), unmatched
    )


def scores_of(batch: SavedBatch) -> NDArray[np.float32]:
    """The log-probs that a file was given for: behavior, else proximal, else current."""
    for name in ("behavior", "proximal", "current"):
        if (found := getattr(batch, name)) is not None:
            return found
    raise InputError("parity needs log-probs, got a file without. Name their column with --columns behavior=….")


def check_same_tokens(one: SavedBatch, other: SavedBatch) -> None:
    """Refuse batches of which tokens are not the same."""
    if not np.array_equal(one.offsets, other.offsets):
        raise InputError(
            f"parity needs the same sequences in A and B, got {len(one):,} with {int(one.offsets[-1]):,} tokens and {len(other):,} with "
            f"{int(other.offsets[-1]):,}."
        )
    if one.tokens is not None and other.tokens is not None and not np.array_equal(one.tokens, other.tokens):
        first = int(np.flatnonzero(one.tokens != other.tokens)[0])
        raise InputError(
            f"parity needs the same tokens in A and B, got {one.tokens[first]} and {other.tokens[first]} at token {first}."
        )
