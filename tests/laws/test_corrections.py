"""What holds for every correction, preset or random, on every batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.batches import Sample, corrections, run, samples
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets import preset, preset_names
from trimtab.core.correct import Corrected, correct

HARMFUL = (float("nan"), float("inf"), -float("inf"), 1e10, -1e10)


def same(one: Corrected, other: Corrected, kept: torch.Tensor | None = None) -> None:
    """Equal decisions and weights; the metrics too, quantiles included."""
    for name in ("weight", "kept", "log_r"):
        left, right = getattr(one, name), getattr(other, name)
        left = left if kept is None else left[kept]
        torch.testing.assert_close(left, right, rtol=2e-6, atol=1e-7, msg=lambda text, name=name: f"{name}: {text}")
    same_metrics(one, other)


def picked(out: Corrected, index: Any) -> Corrected:
    """The same result, some tokens of it."""
    return replace(out, **{name: getattr(out, name)[index] for name in ("weight", "kept", "trained", "log_r")})


def same_metrics(one: Corrected, other: Corrected) -> None:
    assert list(one.metrics) == list(other.metrics)
    for name in one.metrics:
        torch.testing.assert_close(
            one.metrics[name], other.metrics[name], rtol=2e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )


@given(corrections(), samples())
def test_packed_equals_padded(rule: Correction, sample: Sample) -> None:
    padded = run(rule, sample)
    for kind in (torch.int32, torch.int64):
        tensors = sample.packed()
        packed = correct(rule, **(tensors | {"cu_seqlens": tensors["cu_seqlens"].to(kind)}))
        same(padded, packed, sample.there())


@given(corrections(), samples(), st.sampled_from(HARMFUL))
def test_nothing_under_a_false_mask_changes_anything(rule: Correction, sample: Sample, harm: float) -> None:
    poisoned = {
        name: torch.where(sample.mask, tensor, harm) for name, tensor in sample.tensors().items() if name != "mask"
    }
    clean, other = run(rule, sample), run(rule, sample.with_tensors(**poisoned))
    assert torch.equal(clean.weight, other.weight)
    assert torch.equal(clean.kept, other.kept)
    for name in clean.metrics:
        assert torch.equal(clean.metrics[name], other.metrics[name]), name


@given(corrections(), samples(), st.integers(1, 3))
def test_padding_is_invisible(rule: Correction, sample: Sample, extra: int) -> None:
    wide = {
        name: torch.nn.functional.pad(tensor, (0, extra), value=False if name == "mask" else 7.0)
        for name, tensor in sample.tensors().items()
    }
    same(run(rule, sample), picked(run(rule, sample.with_tensors(**wide)), (slice(None), slice(0, -extra))))


@given(corrections(), samples(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(rule: Correction, sample: Sample, random) -> None:
    order = list(range(len(sample.lengths)))
    random.shuffle(order)
    moved = run(rule, sample.with_tensors(**{name: tensor[order] for name, tensor in sample.tensors().items()}))
    same(picked(run(rule, sample), order), moved)


@given(corrections(), samples())
def test_on_policy_data_is_exactly_neutral(rule: Correction, sample: Sample) -> None:
    out = run(rule, sample.with_tensors(proximal=sample.behavior, current=sample.behavior))
    assert torch.equal(out.kept, sample.mask)
    assert torch.equal(out.weight, sample.mask.float())
    for name in (
        "drift/kl",
        "drift/kl_reverse",
        "drift/k3",
        "drift/k3_reverse",
        "drift/chi2_token",
        "drift/chi2_sequence",
        "drift/prob_diff",
    ):
        assert out.metrics[name] == 0, name
    if sample.mask.any():
        assert out.metrics["weight/ess"] == 1
        assert out.metrics["kept_fraction"] == 1


@given(
    corrections(),
    samples(),
    st.sampled_from([float("nan"), float("inf"), -float("inf")]),
    st.sampled_from(["behavior", "proximal", "current"]),
)
def test_a_missing_log_prob_is_a_token_that_was_never_trained(
    rule: Correction, sample: Sample, harm: float, policy: str
) -> None:
    if policy not in rule.needs:
        return
    holes = torch.zeros_like(sample.mask)
    holes[::2, ::3] = True
    broken = sample.with_tensors(**{policy: torch.where(holes, harm, getattr(sample, policy))})
    absent = sample.with_tensors(mask=sample.mask & ~holes)
    one, other = run(rule, broken), run(rule, absent)
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.kept, other.kept)
    lost = (sample.mask & holes).sum() / sample.mask.sum().clamp(min=1)
    torch.testing.assert_close(one.metrics["missing_fraction"], lost.float())
    for name in one.metrics:
        if name != "missing_fraction":
            assert torch.equal(one.metrics[name], other.metrics[name]), name


@given(corrections(), samples())
def test_every_output_is_finite(rule: Correction, sample: Sample) -> None:
    out = run(rule, sample)
    assert out.weight.isfinite().all()
    assert (out.weight >= 0).all()
    assert not (out.weight != 0)[~out.kept].any()
    assert not (out.kept & ~sample.mask).any()
    for name, value in out.metrics.items():
        assert (value.shape, value.dtype) == ((), torch.float32), name
        assert value.isfinite(), name


@given(
    samples(),
    st.sampled_from(["ratio", "k2", "k3", "binary_kl", "tv", "abs_log_ratio", "second_moment"]),
    st.sampled_from(["token", "segment", "sequence"]),
    st.sampled_from(["mean", "sum", "max", "min", "every"]),
)
def test_widening_the_bounds_never_shrinks_what_is_kept(sample: Sample, metric: str, level: str, agg: str) -> None:
    kept = torch.zeros_like(sample.mask)
    for width in (0.01, 0.1, 0.2, 0.45):
        gate = Gate(
            metric=metric,
            level=level,
            agg=None if level == "token" else agg,
            upper=1 + width if metric == "ratio" else width,
        )
        now = run(Correction(gates=(gate,)), sample).kept
        assert not (kept & ~now).any()
        kept = now


@given(samples())
def test_a_larger_budget_never_shrinks_what_is_kept(sample: Sample) -> None:
    kept = torch.zeros_like(sample.mask)
    for tau in (1e-4, 0.04, 1.0, 50.0):
        now = run(preset("m2po", tau=tau), sample).kept
        assert not (kept & ~now).any()
        kept = now


@given(corrections(), samples())
def test_bfloat16_decides_as_its_upcast(rule: Correction, sample: Sample) -> None:
    names = ("behavior", "proximal", "current")
    for kind in (torch.bfloat16, torch.float16):
        low = sample.with_tensors(**{name: getattr(sample, name).to(kind) for name in names})
        high = sample.with_tensors(**{name: getattr(low, name).float() for name in names})
        one, other = run(rule, low), run(rule, high)
        assert torch.equal(one.kept, other.kept)
        assert torch.equal(one.weight, other.weight)


@given(corrections(), samples())
def test_masks_of_any_type_and_strided_tensors_are_one(rule: Correction, sample: Sample) -> None:
    straight = run(rule, sample)
    for kind in (torch.int64, torch.uint8, torch.float32):
        assert torch.equal(run(rule, sample.with_tensors(mask=sample.mask.to(kind))).weight, straight.weight)
    strided = {name: tensor.t().contiguous().t() for name, tensor in sample.tensors().items()}
    torch.testing.assert_close(run(rule, sample.with_tensors(**strided)).weight, straight.weight, rtol=2e-6, atol=1e-7)


@given(corrections(), samples())
def test_splitting_the_batch_changes_nothing(rule: Correction, sample: Sample) -> None:
    """Row by row gives the weights of the whole, but for what is declared a statistic of the whole batch."""
    if rule.needs_whole_step:
        return
    whole = run(rule, sample)
    parts = [
        run(rule, sample.with_tensors(**{name: tensor[row : row + 1] for name, tensor in sample.tensors().items()}))
        for row in range(len(sample.lengths))
    ]
    assert torch.equal(torch.cat([part.weight for part in parts]), whole.weight)
    assert torch.equal(torch.cat([part.kept for part in parts]), whole.kept)


@given(samples(rows=st.integers(1, 4), spread=3.0))
def test_everything_rejected_is_an_exact_zero(sample: Sample) -> None:
    far = sample.with_tensors(proximal=sample.behavior - 5.0)
    out = run(Correction(gates=(Gate(metric="k2", upper=1.0),), weight=Weight(level="token")), far)
    assert not out.kept.any()
    assert torch.equal(out.weight, torch.zeros_like(out.weight))
    assert out.metrics["all_rejected"] == 1
    assert all(value.isfinite() for value in out.metrics.values())


@given(corrections(), samples(), st.sampled_from(HARMFUL))
def test_no_gradient_flows_through_a_correction(rule: Correction, sample: Sample, harm: float) -> None:
    current = torch.where(sample.mask, sample.current, harm).requires_grad_()
    out = run(rule, sample.with_tensors(current=current))
    assert not out.weight.requires_grad
    loss = torch.where(out.kept, current * out.weight, 0.0).sum()
    loss.backward()
    assert current.grad is not None
    assert current.grad.isfinite().all()
    assert not current.grad[~sample.mask].any()


def nonzero(out: Corrected) -> set[str]:
    """The metrics that say something."""
    return {name for name, value in out.metrics.items() if value != 0}


@pytest.mark.parametrize("name", preset_names())
@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (3, 0), (2, 3)])
def test_empty_batches_are_harmless_and_every_metric_of_them_is_nothing(name: str, shape: tuple[int, int]) -> None:
    nothing = torch.zeros(shape)
    out = correct(
        preset(name), behavior=nothing, proximal=nothing, current=nothing, mask=nothing.bool(), advantages=nothing
    )
    assert out.weight.shape == shape
    assert nonzero(out) == {"all_rejected"}
    flat = torch.zeros(0)
    for bounds in (torch.tensor([0]), torch.tensor([0, 0, 0])):
        packed = correct(
            preset(name),
            behavior=flat,
            proximal=flat,
            current=flat,
            mask=flat.bool(),
            advantages=flat,
            cu_seqlens=bounds,
        )
        assert packed.weight.shape == (0,)
        assert nonzero(packed) == {"all_rejected"}
