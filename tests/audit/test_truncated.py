"""Truncated sampling as two engines record it: over the kept tokens (vLLM), or over the whole vocabulary (SGLang)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.audit import made
from trimtab.audit.audit import audit_batch
from trimtab.audit.diagnose import diagnose
from trimtab.records.saved import SavedBatch


def drawn(renormalised: bool, top_k: int | None, noise: float = 2e-5) -> SavedBatch:
    """Tokens of 64 ids, drawn from the likeliest `top_k`, with log-probs over those or over all, and the entropy of all."""
    batch = made.batch(sequences=64, length=60)
    rng = np.random.default_rng(3)
    total = len(batch.trained)
    p = rng.dirichlet(np.full(64, 0.3), total)
    order = np.argsort(-p, axis=1)
    ranked = np.take_along_axis(p, order, axis=1)
    kept = np.where(np.arange(64) < (top_k or 64), ranked, 0.0)
    mass = kept.sum(1, keepdims=True)
    rank = (rng.random((total, 1)) > np.cumsum(kept / mass, axis=1)).sum(1).clip(max=63)
    full = np.log(ranked[np.arange(total), rank])
    own = full - np.log(mass[:, 0]) if renormalised else full
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum(1)
    scored = full + noise * rng.normal(size=total)

    def column(values: np.ndarray) -> np.ndarray:
        return np.where(batch.trained, values, np.nan).astype(np.float32)

    return replace(
        batch,
        tokens=order[np.arange(total), rank],
        behavior=column(np.minimum(own, 0.0)),
        proximal=column(np.minimum(scored, 0.0)),
        entropy=column(entropy),
    )


@pytest.mark.parametrize(
    ("renormalised", "top_k", "found"),
    [(True, 8, ["truncation"]), (False, 8, ["truncation"]), (True, None, []), (False, None, [])],
    ids=["vllm-truncated", "sglang-truncated", "vllm-whole", "sglang-whole"],
)
def test_truncated_sampling_is_found_however_it_is_recorded(renormalised: bool, top_k: int | None, found: list[str]):
    batch = drawn(renormalised, top_k)
    assert [step.cause.name for step in diagnose(batch) if step.verdict == "found"] == found


def test_the_full_softmax_is_told_from_the_entropy_alone():
    batch = drawn(False, 8)
    assert "surprisal" in next(step.statistic for step in diagnose(batch) if step.verdict == "found")
    assert not [
        step for step in diagnose(replace(batch, entropy=None)) if step.verdict == "found"
    ]  # nothing else shows it
    assert audit_batch(batch).advice.title == "Fix first: truncated sampling"


def test_a_gap_of_stale_weights_is_no_missing_surprisal():
    batch = drawn(False, None, noise=0.3)
    assert "truncation" not in [step.cause.name for step in diagnose(batch) if step.verdict == "found"]


def test_the_worked_values():
    p = np.array([0.5, 0.25, 0.25])
    entropy = -(p * np.log(p)).sum()
    drawn_of_two = -(2 / 3 * np.log(0.5) + 1 / 3 * np.log(0.25))
    assert entropy == pytest.approx(1.04, abs=0.005)
    assert drawn_of_two - entropy == pytest.approx(-0.116, abs=0.001)
