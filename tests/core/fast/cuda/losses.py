"""The law plain = kernels for losses: one number, its gradient and its metrics, whichever form works them out."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.core.fast.cuda.interpreter import by_kernels, in_type
from tests.core.fast.cuda.laws import few
from tests.laws.batches import Sample, samples
from tests.laws.test_fast import fitting_rules, on_a_grid, spoil
from tests.laws.test_fast_losses import CLIPS, REDUCTIONS
from trimtab.config.algebra import Correction, Gate
from trimtab.config.losses import Clip
from trimtab.core.reduce import Denominator
from trimtab.errors import ConfigWarning, InputError
from trimtab.losses.onepass import QuickPolicyMetrics
from trimtab.losses.policy import PolicyLoss, policy_loss


def run(tensors: dict[str, Tensor], *, fast: bool, **given: object) -> tuple[PolicyLoss, Tensor]:
    with by_kernels(fast=fast), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        current = tensors["current"].clone().requires_grad_()
        found = policy_loss(**({"loss": Clip()} | given | tensors | {"current": current}))
        (gradient,) = torch.autograd.grad(found.loss, current, retain_graph=True)
        dict(found.metrics)
        return found, gradient


@few
@given(
    st.one_of(st.none(), fitting_rules()),
    samples(rows=st.integers(1, 3)),
    st.sampled_from((None, float("nan"), -float("inf"))),
    st.sampled_from(CLIPS),
    st.sampled_from(REDUCTIONS),
    st.booleans(),
)
def test_kernels_give_the_loss_its_gradient_and_its_metrics(
    rule: Correction | None, sample: Sample, harm: float | None, loss: Clip, reduction: str, packed: bool
) -> None:
    sample = spoil(on_a_grid(sample), harm)
    settings = {"loss": loss, "correction": rule, "reduction": reduction}
    tensors = sample.packed() if packed else sample.tensors()
    if tensors["mask"].numel() == 0:
        return
    (fast, slope), (plain, plain_slope) = run(tensors, fast=True, **settings), run(tensors, fast=False, **settings)
    exact, _ = run(in_type(tensors, torch.float64), fast=False, **settings)
    torch.testing.assert_close(fast.loss, plain.loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(slope, plain_slope, rtol=1e-5, atol=1e-9)
    assert torch.equal(slope == 0, plain_slope == 0)
    assert list(fast.metrics) == list(plain.metrics)
    kept = [float(each.metrics.get("kept_fraction", torch.ones(()))) for each in (exact, plain)]
    if kept[0] != kept[1]:
        return  # a bound is met to the last digit of one type and not of the other
    for name, value in exact.metrics.items():
        near = 1e-5 * max(1.0, abs(float(value)))
        assert abs(float(fast.metrics[name]) - float(value)) <= near, name


def tensors() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    behavior = -torch.rand(2, 5, generator=draw)
    proximal = behavior + 0.1 * torch.randn(2, 5, generator=draw)
    current = proximal + 0.3 * torch.randn(2, 5, generator=draw)
    given = {"behavior": behavior, "proximal": proximal, "current": current}
    return given | {"advantages": torch.tensor([1.0, -2.0]), "mask": torch.rand(2, 5, generator=draw) < 0.8}


def test_the_slope_worked_by_hand() -> None:
    """ρ = 1, 1.5 and 0.5 with A = 1, 1 and −1: −1, clipped to −1.2, and 0.8; slopes −ρ, 0 and 0; over three tokens."""
    log = torch.tensor([[1.0, 1.5, 0.5]]).log()
    given = {"current": log - 1, "proximal": torch.full((1, 3), -1.0), "mask": torch.ones(1, 3).bool()}
    found, slope = run(given | {"advantages": torch.tensor([[1.0, 1.0, -1.0]])}, fast=True)
    torch.testing.assert_close(found.loss.detach(), torch.tensor((-1.0 - 1.2 + 0.8) / 3))
    torch.testing.assert_close(slope, torch.tensor([[-1.0 / 3, 0.0, 0.0]]))
    assert float(found.metrics["policy/clip_high"]) == float(found.metrics["policy/clip_low"]) == pytest.approx(1 / 3)


@pytest.mark.parametrize("tokens", [40, 40.0, torch.tensor(40), torch.tensor(40.0, dtype=torch.float64), 0])
def test_the_counts_of_a_step_divide_in_any_form(tokens: Tensor | float) -> None:
    step = Denominator(tokens=tokens, sequences=8, averaged_over=2)
    (fast, slope), (plain, other) = (run(tensors(), fast=fast, denominator=step) for fast in (True, False))
    torch.testing.assert_close(fast.loss, plain.loss)
    torch.testing.assert_close(slope, other)
    torch.testing.assert_close(fast.metrics["policy/loss"], plain.metrics["policy/loss"])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
def test_a_gradient_has_the_type_of_its_log_probs(kind: torch.dtype) -> None:
    given = in_type(tensors(), kind) | {"advantages": tensors()["advantages"]}
    (fast, slope), (plain, other) = (run(given, fast=fast, correction="token-tis") for fast in (True, False))
    assert slope.dtype == kind
    torch.testing.assert_close(slope, other)
    torch.testing.assert_close(fast.loss, plain.loss, rtol=1e-5, atol=1e-7)


def test_a_loss_of_nothing_kept_is_an_exact_zero() -> None:
    given = tensors()
    none = Correction(gates=(Gate(metric="ratio", level="sequence", upper=1.1),))
    found, slope = run(given | {"behavior": given["proximal"] - 1}, fast=True, correction=none)
    assert float(found.loss.detach()) == 0.0
    assert torch.equal(slope, torch.zeros(2, 5))
    assert float(found.metrics["all_rejected"]) == 1.0
    assert all(bool(value.isfinite()) for value in found.metrics.values())


def test_a_missing_current_log_prob_is_a_token_less() -> None:
    given = tensors() | {"mask": torch.ones(2, 5).bool()}
    given["current"][0, 0] = float("nan")
    (fast, slope), (plain, other) = (run(given, fast=fast, correction="token-tis") for fast in (True, False))
    torch.testing.assert_close(fast.loss, plain.loss, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(slope, other, rtol=1e-5, atol=1e-9)
    assert float(fast.metrics["missing_fraction"]) == float(plain.metrics["missing_fraction"]) > 0


def test_a_second_derivative_and_a_second_gradient_are_those_of_the_plain_form() -> None:
    found: list[tuple[Tensor, Tensor]] = []
    for fast in (True, False):
        with by_kernels(fast=fast):
            given = tensors()
            current = given.pop("current").requires_grad_()
            del given["behavior"]
            out = policy_loss(Clip(), current=current, **given)
            assert isinstance(out.metrics, QuickPolicyMetrics) is fast
            (first,) = torch.autograd.grad(out.loss, current, retain_graph=True)
            (again,) = torch.autograd.grad(2 * out.loss, current, retain_graph=True)
            torch.testing.assert_close(again, 2 * first)
            (twice,) = torch.autograd.grad(out.loss, current, create_graph=True)
            (second,) = torch.autograd.grad(twice.square().sum(), current)
            found.append((first, second))
    assert float(found[0][1].abs().max()) > 0
    for fast, plain in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain)


def test_what_the_plain_form_works_out_is_an_error_after_a_change_in_place() -> None:
    with by_kernels():
        given = tensors()
        out = policy_loss(Clip(), correction="token-tis", **given)
        given["behavior"].add_(0.5)
        assert bool(out.metrics["policy/k3"].isfinite())  # was worked out with the loss
        with pytest.raises(InputError, match="changed in place since"):
            _ = out.metrics["ratio/p50"]
