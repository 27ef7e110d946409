"""Batches made by hand, with what an audit needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from trimtab.records.saved import Origin, SavedBatch


def batch(
    sequences: int = 64, length: int = 40, prompt: int = 5, noise: float = 0.0, seed: int = 0, **more: Any
) -> SavedBatch:
    """Sampler and trainer that agree up to normal noise; all fresh, in groups of four, from four engines."""
    rng = np.random.default_rng(seed)
    whole = prompt + length
    total = sequences * whole
    trained = np.tile(np.arange(whole) >= prompt, sequences)
    behavior = np.where(trained, np.log(rng.beta(0.8, 0.5, total).clip(1e-5, 1 - 1e-6)), np.nan).astype(np.float32)
    # Noise on logits moves a token by 1 − p of it. Drawn as behavior says, tokens have a mean ratio of 1, hence half the variance.
    scale = noise * (1 - np.exp(np.nan_to_num(behavior)))
    apart = scale * rng.normal(size=total) - scale**2 / 2
    columns: dict[str, Any] = {
        "origin": Origin(framework="columns", files=("made.jsonl",)),
        "offsets": np.arange(0, total + 1, whole),
        "trained": trained,
        "tokens": rng.integers(10, 1000, total),
        "behavior": behavior,
        "proximal": np.minimum(behavior + apart, 0.0).astype(np.float32),
        "advantage": np.repeat(rng.normal(size=sequences), whole).astype(np.float32),
        "versions": np.where(trained, 7, -1),
        "group": np.arange(sequences) // 4,
        "reward": (rng.random(sequences) < 0.5).astype(np.float64),
        "step": np.full(sequences, 7),
        "learner_version": np.full(sequences, 7),
        "source": tuple(f"engine-{place % 4}" for place in range(sequences)),
    }
    return SavedBatch(**columns | more)
