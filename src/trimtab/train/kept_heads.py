"""The heads of many responses as four arrays, for a checkpoint, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.train.messages import Sample, SampledHead

HEAD_COLUMNS = {
    "head_counts": np.int32,
    "head_log_mass": np.float32,
    "head_ids": np.int32,
    "head_log_probs": np.float32,
}
"""Arrays and their types: the first two have a number for each token of each response, the others one for each id."""


def head_arrays(samples: Sequence[Sample]) -> dict[str, NDArray[Any]]:
    """Arrays of all heads, one after the other; none where no response has one. What an engine did not tell is NaN."""
    if all(sample.head is None for sample in samples):
        return {}
    parts: dict[str, list[NDArray[Any]]] = {name: [np.zeros(0, kind)] for name, kind in HEAD_COLUMNS.items()}
    for sample in samples:
        tokens = len(sample.tokens)
        head = sample.head or SampledHead(np.zeros(tokens, np.int32), np.zeros(0, np.int32), None, None)
        parts["head_counts"].append(head.counts)
        parts["head_ids"].append(head.ids)
        parts["head_log_mass"].append(_or_nan(head.log_mass, tokens))
        parts["head_log_probs"].append(_or_nan(head.log_probs, len(head.ids)))
    return {name: np.concatenate(values).astype(HEAD_COLUMNS[name], copy=False) for name, values in parts.items()}


def heads_from(arrays: Mapping[str, Any], lengths: Sequence[int]) -> list[SampledHead | None]:
    """The heads of responses of these lengths; None for one without a single id."""
    if "head_counts" not in arrays:
        return [None] * len(lengths)
    found: list[SampledHead | None] = []
    token = entry = 0
    for length in lengths:
        counts = arrays["head_counts"][token : token + length].copy()
        ids = slice(entry, entry + int(counts.sum()))
        own = (arrays["head_ids"][ids].copy(), _known(arrays["head_log_probs"][ids]))
        mass = _known(arrays["head_log_mass"][token : token + length])
        found.append(SampledHead(counts, *own, mass) if counts.any() else None)
        token, entry = token + length, ids.stop
    return found


def head_flaw(arrays: Mapping[str, Any], tokens: int, vocabulary: int) -> str | None:
    """What is wrong with the heads of a checkpoint; None if nothing is, or if it has none."""
    if not any(name in arrays for name in HEAD_COLUMNS):
        return None
    counts = arrays.get("head_counts")
    if (
        not isinstance(counts, np.ndarray)
        or counts.dtype != np.int32
        or counts.shape != (tokens,)
        or (counts < 0).any()
    ):
        return f"head_counts in arrays.safetensors is not one row of {tokens} counts of type int32"
    entries = int(counts.sum(dtype=np.int64))
    for name, kind in HEAD_COLUMNS.items():
        wanted = tokens if name in ("head_counts", "head_log_mass") else entries
        array = arrays.get(name)
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != (wanted,):
            return f"{name} in arrays.safetensors is not one row of {wanted} numbers of type {kind.__name__}"
    ids = arrays["head_ids"]
    if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= vocabulary):
        return f"head_ids in arrays.safetensors holds a number outside 0 to {vocabulary - 1}"
    return None


def _or_nan(values: NDArray[Any] | None, number: int) -> NDArray[Any]:
    return np.full(number, np.nan, np.float32) if values is None else values


def _known(values: NDArray[Any]) -> NDArray[Any] | None:
    """The numbers, or None where all of them are missing."""
    return None if len(values) and bool(np.isnan(values).all()) else values.copy()
