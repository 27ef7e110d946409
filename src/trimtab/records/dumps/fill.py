"""Numbers that stand for a log-prob nobody knows: found and taken for missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.records.saved import LOG_PROBS, SavedBatch

FILLS = (1.0, -30.0, -100.0, -999.0, -1e3, -9999.0, -1e4, -1e5, -1e6, -1e9, -1e10, float(np.finfo(np.float32).min))
"""Written where there is nothing; no log-prob happens to be one of them to the last bit."""
_IMPOSSIBLE = 0.1
"""A log-prob above this is of a probability above 1: no rounding does that, a sentinel does."""
_NEAR = -1e-3
_FAR = -0.5
_USUAL = 0.01


def without_fills(batch: SavedBatch) -> SavedBatch:
    """The batch with NaN for what a writer filled in, and a note on each sort."""
    known = {name: getattr(batch, name) for name in LOG_PROBS if getattr(batch, name) is not None}
    mended: dict[str, Any] = {}
    notes: list[str] = []
    for name, values in known.items():
        sorts = _sorts(name, known, batch.trained)
        filled = np.logical_or.reduce(list(sorts.values()))
        if filled.any():
            mended[name] = np.where(filled, np.float32(np.nan), values)
        notes += [_note(name, words, found, batch.trained) for words, found in sorts.items() if found.any()]
    origin = replace(batch.origin, notes=(*batch.origin.notes, *notes))
    return replace(batch, origin=origin, **mended)


def _sorts(name: str, known: Mapping[str, NDArray[Any]], trained: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    values = known[name]
    with np.errstate(invalid="ignore"):
        zero = values == 0
        return {
            "0.0 outside the mask": zero & ~trained,
            "0.0 beside a log-prob of the other side that is far from it": _zeros(name, known, zero & trained),
            "a filler such as -30 or -9999": np.isin(values, np.array(FILLS, np.float32)),
            "infinite": np.isinf(values),
            "above 0, which no log-prob is": np.isfinite(values) & (values > _IMPOSSIBLE),
        }


def _zeros(name: str, known: Mapping[str, NDArray[Any]], zero: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Zeros of trained tokens to which another policy gave less than 0.6.

    A token of probability 1 has a true log-prob of 0.0, and the other side is near it. So are values just below 0: where those
    are far from the other side too, the columns are shifted or of other tokens, and their zeros are left for an audit to see.
    """
    other = next((column for key, column in known.items() if key != name), None)
    if other is None or not zero.any():
        return np.zeros_like(zero)
    far = other < _FAR
    near = (known[name] < 0) & (known[name] > _NEAR) & np.isfinite(other)
    if near.any() and float((far & near).sum()) > _USUAL * float(near.sum()):
        return np.zeros_like(zero)
    return zero & far


def _note(name: str, words: str, found: NDArray[np.bool_], trained: NDArray[np.bool_]) -> str:
    total, inside = int(found.sum()), int((found & trained).sum())
    share = f", {inside} of them trained" if 0 < inside < total else ", all of them trained" if inside else ""
    return f"{name}: {total} values are {words} and count as missing{share}."
