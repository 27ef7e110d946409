"""Far log-probs (sentinels, overflow) and long batches: every metric is finite, and what it says to the last digits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.batches import Sample, corrections, run, samples
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets import preset
from trimtab.core.correct import Corrected, correct
from trimtab.core.layout import Layout, Packed, Padded, Turns

SENTINELS = (-9999.0, 1e4, -1e4, math.inf, -math.inf, 3e38, -3e38)
KINDS = (torch.float32, torch.float64)
POINTS = ("min", "p01", "p50", "p99", "max")


@st.composite
def far_samples(draw: st.DrawFn) -> Sample:
    """A batch in which some tokens of each policy, and some advantages, hold sentinels."""
    sample, kind = draw(samples()), draw(st.sampled_from(KINDS))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    found = dict(sample.tensors())
    for name in ("behavior", "proximal", "current", "advantages"):
        which = torch.tensor(draw(st.lists(st.sampled_from(SENTINELS), min_size=1, max_size=3)), dtype=kind)
        chosen = which[torch.randint(len(which), sample.mask.shape, generator=generator)]
        share = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
        there = torch.rand(sample.mask.shape, generator=generator) < share
        found[name] = torch.where(there, chosen, found[name].to(kind))
    return sample.with_tensors(**found)


def outcomes(rule: Correction, sample: Sample) -> Iterator[Corrected]:
    """In both layouts."""
    yield run(rule, sample)
    yield correct(rule, **sample.packed())


@given(corrections(), far_samples())
def test_every_metric_is_finite_whatever_a_log_prob_holds(rule: Correction, sample: Sample) -> None:
    for out in outcomes(rule, sample):
        assert out.weight.isfinite().all()
        for name, value in out.metrics.items():
            assert (value.shape, value.dtype) == ((), torch.float32), name
            assert value.isfinite(), f"{name} is {value.item()}"


EXPONENTIAL = [
    Gate(metric=metric, level=level, agg=agg, action="observe")
    for metric in ("k3", "mult_prob_error", "ratio_deviation", "k2", "second_moment", "abs_log_ratio", "tv", "k1")
    for level, agg in (("token", None), ("sequence", "mean"), ("sequence", "max"), ("segment", "every"))
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_metric_is_finite_where_tokens_lie_as_far_apart_as_the_type_allows(kind: torch.dtype) -> None:
    far = torch.tensor([[-1.0, -1.0, -101.0], [3e38, -3e38, -1.0], [-1e4, 1e4, -9999.0]], dtype=kind)
    for behavior, proximal in (
        (far, far.flip(0)),
        (torch.full_like(far, -1.0), far),
        (far, torch.full_like(far, 3e38)),
    ):
        for rule in (Correction(gates=(gate,), weight=Weight(level="token")) for gate in EXPONENTIAL):
            out = correct(rule, behavior=behavior, proximal=proximal, mask=torch.ones(3, 3, dtype=torch.bool))
            assert not [name for name, value in out.metrics.items() if not value.isfinite()]


@given(corrections(), far_samples())
def test_quantiles_lie_between_the_least_and_the_greatest(rule: Correction, sample: Sample) -> None:
    for out in outcomes(rule, sample):
        for prefix in {name.rpartition("/")[0] for name in out.metrics if name.endswith("/p50")}:
            row = [float(out.metrics[f"{prefix}/{point}"]) for point in POINTS]
            assert all(one <= other + 1e-6 * abs(other) for one, other in pairwise(row)), (prefix, row)


def test_the_reverse_kl_of_a_token_far_below_is_nothing() -> None:
    # r·ℓ for ℓ = 0, 0, 0 and far below: 0; for ℓ = log 2 it is 2 log 2
    behavior = torch.full((1, 4), -1.0)
    for far in (-19.0, -25.0, -1e4, -3e38):
        proximal = behavior + torch.tensor([[0.0, 0.0, 0.0, far]])
        out = correct(preset("off"), behavior=behavior, proximal=proximal, mask=torch.ones(1, 4))
        assert float(out.metrics["drift/kl_reverse"]) == pytest.approx(0.0, abs=1e-6), far
        proximal[0, 0] += math.log(2)
        out = correct(preset("off"), behavior=behavior, proximal=proximal, mask=torch.ones(1, 4))
        assert float(out.metrics["drift/kl_reverse"]) == pytest.approx(2 * math.log(2) / 4, abs=1e-6), far


@pytest.mark.parametrize("scale", [1.0, 1e20, 1e30])
def test_weights_are_described_as_in_float64(scale: float) -> None:
    draw = torch.Generator().manual_seed(4)
    behavior = torch.zeros(64, 4096)
    proximal = 2 * torch.randn(64, 4096, generator=draw) + math.log(scale)
    out = correct(Correction(weight=Weight(level="token")), behavior=behavior, proximal=proximal, mask=behavior == 0)
    w = out.weight.double()
    want = {"mean": w.mean(), "std": w.std(correction=0), "ess": w.sum() ** 2 / (w.numel() * w.square().sum())}
    for name, value in want.items():
        assert float(out.metrics[f"weight/{name}"]) == pytest.approx(float(value), rel=1e-6), name


def layouts(rows: int, width: int) -> Iterator[tuple[Layout, tuple[int, ...]]]:
    bounds = torch.arange(rows + 1) * width
    yield Padded(), (rows, width)
    yield Packed(cu_seqlens=bounds, tokens=rows * width), (-1,)
    yield Turns(index=torch.arange(rows).repeat_interleave(width), units=rows), (-1,)


def test_sums_over_long_sequences_are_those_of_float64() -> None:
    value = torch.rand(3, 131072, generator=torch.Generator().manual_seed(1))
    want = value.double().sum(-1)
    for layout, shape in layouts(3, 131072):
        torch.testing.assert_close(layout.sums(value.reshape(shape)), want, rtol=1e-13, atol=0)
        assert torch.equal(layout.total(value.reshape(shape)), want.float()), layout


def test_a_sequence_of_more_than_sixteen_million_tokens_is_counted_whole() -> None:
    number = 2**24 + 64
    for layout, shape in layouts(1, number):
        assert layout.count(torch.ones(1, number).reshape(shape)).item() == number, layout


@pytest.mark.parametrize("level", ["sequence", "segment"])
@pytest.mark.parametrize("agg", ["mean", "sum"])
def test_a_bound_that_is_the_statistic_rounded_once_keeps_and_the_number_below_it_rejects(level: str, agg: str) -> None:
    rows, width = 12, 97
    log_r = torch.rand(rows, width, generator=torch.Generator().manual_seed(5))
    mask = torch.ones(rows, width, dtype=torch.bool)
    mask[:, 0] = False  # a gap between the turns of two sequences
    data = {"behavior": torch.zeros_like(log_r), "proximal": log_r, "mask": mask}
    packed = {name: each.flatten() for name, each in data.items()} | {"cu_seqlens": torch.arange(rows + 1) * width}
    number = width - 1 if agg == "mean" else 1
    for row, exact in enumerate((log_r[:, 1:].double().sum(-1) / number).float()):
        below = torch.nextafter(exact, torch.tensor(0.0))
        for upper, kept in ((exact, True), (below, False)):
            gate = Gate(metric="k1", direction="reverse", level=level, agg=agg, upper=float(upper))
            for tensors in (data, packed):
                out = correct(Correction(gates=(gate,)), **tensors).kept.reshape(rows, width)[row]
                assert bool(out.any()) is kept, (row, upper)
