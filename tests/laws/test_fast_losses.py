"""The law plain = fast for losses: one number, its gradient and its metrics, whichever form works them out."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.laws.batches import Sample, samples
from tests.laws.test_fast import fitting_rules, on_a_grid, spoil
from trimtab.config.correction import Correction
from trimtab.config.losses import Clip
from trimtab.errors import ConfigWarning, InputError
from trimtab.losses.policy import PolicyLoss, policy_loss

REDUCTIONS = ("token-mean", "token-sum", "seq-mean-token-sum")
CLIPS = (Clip(), Clip(low=0.1, high=0.3, dual=3.0))


def run(tensors: dict[str, Tensor], fast: bool, **settings: object) -> tuple[PolicyLoss, Tensor]:
    with pytest.MonkeyPatch.context() as monkeypatch, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        monkeypatch.setenv("TRIMTAB_FAST", "1" if fast else "0")
        current = tensors["current"].clone().requires_grad_()
        found = policy_loss(**(tensors | {"current": current}), **settings)
        (gradient,) = torch.autograd.grad(found.loss, current)
        return found, gradient


@given(
    st.one_of(st.none(), fitting_rules()),
    samples(),
    st.sampled_from((None, float("nan"), -float("inf"))),
    st.sampled_from(CLIPS),
    st.sampled_from(REDUCTIONS),
)
def test_the_pass_gives_the_loss_its_gradient_and_its_metrics(
    rule: Correction | None, sample: Sample, harm: float | None, loss: Clip, reduction: str
) -> None:
    sample = spoil(on_a_grid(sample), harm)
    settings = {"loss": loss, "correction": rule, "reduction": reduction}
    for tensors in (sample.tensors(), sample.packed()):
        if tensors["mask"].numel() == 0:
            continue
        wide = {name: each.double() if each.is_floating_point() else each for name, each in tensors.items()}
        (fast, slope), (plain, plain_slope) = run(tensors, True, **settings), run(tensors, False, **settings)
        exact, _ = run(wide, False, **settings)
        torch.testing.assert_close(fast.loss, plain.loss, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(slope, plain_slope, rtol=1e-5, atol=1e-9)
        assert torch.equal(slope == 0, plain_slope == 0)
        assert list(fast.metrics) == list(plain.metrics)
        if float(exact.metrics.get("kept_fraction", torch.ones(()))) != float(
            plain.metrics.get("kept_fraction", torch.ones(()))
        ):
            continue  # a bound is met to the last digit of one type and not of the other
        for name, value in exact.metrics.items():
            near = 1e-5 * max(1.0, abs(float(value)))
            assert abs(float(fast.metrics[name]) - float(value)) <= near, name


@given(samples(spread=0.05))
def test_the_pass_is_taken_where_it_fits(sample: Sample) -> None:
    """A control: without it the law above would compare the plain form with itself."""
    fast, _ = run(sample.tensors(), True, loss=Clip(), correction="token-tis")
    plain, _ = run(sample.tensors(), False, loss=Clip(), correction="token-tis")
    assert fast.metrics.by_pass
    assert not plain.metrics.by_pass


def test_a_second_derivative_is_that_of_the_plain_form(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    proximal = -torch.rand(3, 5, generator=draw)
    start = proximal + 0.05 * torch.randn(3, 5, generator=draw)
    found: list[Tensor] = []
    for fast in ("1", "0"):
        monkeypatch.setenv("TRIMTAB_FAST", fast)
        current = start.clone().requires_grad_()
        mask = torch.ones(3, 5).bool()
        out = policy_loss(Clip(), current=current, proximal=proximal, advantages=torch.ones(3), mask=mask)
        assert out.metrics.by_pass == (fast == "1")
        (first,) = torch.autograd.grad(out.loss, current, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), current)
        found.append(second)
    assert float(found[0].abs().max()) > 0
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(3, 5), (3, 1), (3,)], ids=str)
def test_advantages_of_any_type_are_those_of_float32(
    shape: tuple[int, ...], kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    draw = torch.Generator().manual_seed(0)
    proximal = -torch.rand(3, 5, generator=draw)
    advantages = torch.randint(-4, 5, shape, generator=draw).to(kind) / (1 if kind == torch.int64 else 2)
    found: list[tuple[Tensor, Tensor]] = []
    for worth in (advantages.to(kind), advantages.float()):
        current = (proximal + 0.1).requires_grad_()
        mask = torch.ones(3, 5).bool()
        out = policy_loss(Clip(), current=current, proximal=proximal, advantages=worth, mask=mask)
        assert out.metrics.by_pass
        out.loss.backward()
        assert current.grad is not None
        found.append((out.loss.detach(), current.grad))
    assert float(found[0][1].abs().max()) > 0
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


def test_what_the_plain_form_works_out_can_still_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    behavior = torch.tensor([[-1.0, -2.0]])
    current = (behavior + 0.1).requires_grad_()
    out = policy_loss(
        Clip(),
        current=current,
        proximal=behavior + 0.05,
        behavior=behavior,
        advantages=torch.ones(1),
        mask=torch.ones(1, 2).bool(),
        correction="token-tis",
    )
    assert out.metrics.by_pass
    torch.testing.assert_close(out.metrics.terms.weight, torch.full((1, 2), 0.05).exp())
    assert out.metrics.surrogate.value.shape == (1, 2)


def test_a_gradient_asked_for_twice_is_the_same_both_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first takes the gradient that the pass wrote, where they lie; the second is made by the plain form."""
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    draw = torch.Generator().manual_seed(0)
    proximal = -torch.rand(3, 5, generator=draw)
    current = (proximal + 0.3 * torch.randn(3, 5, generator=draw)).requires_grad_()
    advantages, mask = torch.tensor([1.0, -2.0, 0.5]), torch.ones(3, 5).bool()
    out = policy_loss(Clip(), current=current, proximal=proximal, advantages=advantages, mask=mask)
    assert out.metrics.by_pass
    (first,) = torch.autograd.grad(out.loss, current, retain_graph=True)
    before = first.clone()
    (second,) = torch.autograd.grad(2 * out.loss, current)
    assert float(before.abs().max()) > 0
    assert torch.equal(first, before)  # nobody wrote into what was handed out
    torch.testing.assert_close(second, 2 * first)


def test_metrics_after_a_change_in_place_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    behavior, advantages, mask = torch.full((2, 3), -1.0), torch.ones(2, 3), torch.ones(2, 3).bool()
    given = {"proximal": behavior + 0.1, "behavior": behavior, "mask": mask, "correction": "token-tis"}
    for changed in (advantages, behavior):
        out = policy_loss(Clip(), current=(behavior + 0.1).requires_grad_(), advantages=advantages, **given)
        changed.add_(0.5)
        with pytest.raises(InputError, match="modified in place"):
            _ = out.metrics["policy/k3"]
