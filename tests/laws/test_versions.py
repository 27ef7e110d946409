"""Versions: the data came from the policy version it claims, and a version that is not known is not a fresh one."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.batches import Sample, samples
from trimtab.core.staleness import staleness

LEARNER = 20


def versions_of(sample: Sample, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-1, LEARNER + 1, sample.mask.shape, generator=generator)


@given(samples(), st.integers(0, 99), st.sampled_from([-1, 0, LEARNER, 2**40]))
def test_versions_under_a_false_mask_never_matter(sample: Sample, seed: int, harm: int) -> None:
    versions = versions_of(sample, seed)
    clean = staleness(versions, sample.mask, learner=LEARNER)
    other = staleness(torch.where(sample.mask, versions, harm), sample.mask, learner=LEARNER)
    assert torch.equal(clean.rows, other.rows)
    assert all(torch.equal(clean.metrics[name], other.metrics[name]) for name in clean.metrics)


@given(samples(), st.integers(0, 99))
def test_versions_packed_are_versions_padded(sample: Sample, seed: int) -> None:
    versions, there = versions_of(sample, seed), sample.there()
    padded = staleness(versions, sample.mask, learner=LEARNER)
    bounds = sample.packed()["cu_seqlens"]
    packed = staleness(versions[there], sample.mask[there], learner=LEARNER, cu_seqlens=bounds)
    assert torch.equal(padded.rows, packed.rows)
    assert torch.equal(padded.tokens[there], packed.tokens)
    for name in padded.metrics:
        torch.testing.assert_close(padded.metrics[name], packed.metrics[name])


@given(samples(), st.integers(0, 99))
def test_a_lost_version_never_reads_as_a_fresh_one(sample: Sample, seed: int) -> None:
    """Losing versions lowers the coverage; it leaves the mean age of the rest alone and never dates an undated row."""
    versions = versions_of(sample, seed)
    whole = staleness(versions, sample.mask, learner=LEARNER)
    lost = torch.rand(versions.shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    part = staleness(torch.where(lost, -1, versions), sample.mask, learner=LEARNER)
    assert part.metrics["staleness/coverage"] <= whole.metrics["staleness/coverage"]
    left = whole.known & ~lost
    wanted = whole.tokens[left].double().mean() if left.any() else torch.zeros((), dtype=torch.float64)
    torch.testing.assert_close(part.metrics["staleness/token_mean"].double(), wanted)
    assert not (part.dated & ~whole.dated).any()


@given(samples(), st.integers(0, 99))
def test_a_newer_token_never_makes_a_sequence_younger(sample: Sample, seed: int) -> None:
    versions = versions_of(sample, seed)
    before = staleness(versions, sample.mask, learner=LEARNER)
    grown = torch.nn.functional.pad(versions, (0, 1), value=LEARNER)
    mask = torch.nn.functional.pad(sample.mask, (0, 1), value=True)
    after = staleness(grown, mask, learner=LEARNER)
    assert torch.equal(torch.where(before.dated, after.rows, 0.0), before.rows)
