"""Log-probs from hidden states and from logits: equal to log_softmax and gather, in value and in gradient, in less room."""

from __future__ import annotations

import inspect
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.waiting import LIMIT
from trimtab.errors import ConfigError, InputError
from trimtab.log_probs import from_hidden as lm_head
from trimtab.log_probs.public import SelectedLogProbs, log_probs_of, selected_log_probs

IGNORED = -100


@dataclass(frozen=True)
class Case:
    """One call: tensors with gradient, the targets, and what is asked."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    temperature: float | Tensor
    targets: Tensor
    vocabulary: Tensor | None
    chunk: int | None

    @property
    def leaves(self) -> list[Tensor]:
        given = (self.hidden, self.weight, self.bias, self.temperature)
        return [each for each in given if isinstance(each, Tensor) and each.requires_grad]

    def found(self, entropy: bool = True) -> SelectedLogProbs:
        return selected_log_probs(
            self.hidden,
            self.weight,
            self.targets,
            temperature=self.temperature,
            bias=self.bias,
            entropy=entropy,
            vocabulary=self.vocabulary,
            chunk=self.chunk,
        )

    def plain(self) -> SelectedLogProbs:
        logits = self.hidden @ self.weight.T
        logits = logits if self.bias is None else logits + self.bias
        temperature = self.temperature
        logits = logits / (temperature.unsqueeze(-1) if isinstance(temperature, Tensor) else temperature)
        if self.vocabulary is not None:
            out = torch.ones(len(self.weight), dtype=torch.bool).index_fill(0, self.vocabulary, False)
            logits = logits.masked_fill(out, -torch.inf)
        return plain(logits, self.targets)


def plain(logits: Tensor, targets: Tensor) -> SelectedLogProbs:
    every = logits.log_softmax(-1)
    chosen = every.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    surprise = torch.where(every.isinf(), 0.0, every.exp() * torch.where(every.isinf(), 0.0, every))
    ignored = targets < 0
    return SelectedLogProbs(chosen.masked_fill(ignored, 0.0), -surprise.sum(-1).masked_fill(ignored, 0.0))


@st.composite
def cases(draw: st.DrawFn, dtype: torch.dtype = torch.float64) -> Case:
    shape = draw(st.sampled_from([(1,), (5,), (2, 3), (0,), (2, 0)]))
    width, size = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))

    def numbers(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=dtype).mul_(2).requires_grad_()

    temperature: float | Tensor = draw(st.sampled_from([1.0, 0.7, 3.0]))
    if draw(st.booleans()):
        temperature = torch.rand(shape, generator=random, dtype=dtype).add_(0.5).requires_grad_()
    vocabulary = None
    if draw(st.booleans()):
        vocabulary = torch.randperm(size, generator=random)[: draw(st.integers(1, size))]
    allowed = torch.arange(size) if vocabulary is None else vocabulary
    targets = allowed[torch.randint(len(allowed), shape, generator=random)]
    ignored = torch.rand(shape, generator=random) < draw(st.sampled_from([0.0, 0.3, 1.0]))
    return Case(
        hidden=numbers(*shape, width),
        weight=numbers(size, width),
        bias=numbers(size) if draw(st.booleans()) else None,
        temperature=temperature,
        targets=targets.masked_fill(ignored, IGNORED),
        vocabulary=vocabulary,
        chunk=draw(st.sampled_from([None, 1, 2, 7, 16, 1000])),
    )


def random_case(
    tokens: int = 6, size: int = 11, width: int = 4, *, dtype: torch.dtype = torch.float64, **given: Any
) -> Case:
    torch.manual_seed(0)
    fields: dict[str, Any] = {
        "hidden": torch.randn(tokens, width, dtype=dtype).requires_grad_(),
        "weight": torch.randn(size, width, dtype=dtype).requires_grad_(),
        "bias": torch.randn(size, dtype=dtype).requires_grad_(),
        "temperature": 1.0,
        "targets": torch.randint(size, (tokens,)),
        "vocabulary": None,
        "chunk": None,
    }
    return Case(**(fields | given))


def gradients(found: SelectedLogProbs, leaves: list[Tensor]) -> list[Tensor]:
    """Gradients of a weighted sum, so that every token and both results pull differently."""
    pull = torch.linspace(-1, 2, found.log_probs.numel(), dtype=found.log_probs.dtype).view(found.log_probs.shape)
    total = (pull * found.log_probs).sum()
    if found.entropy is not None:
        total = total + ((pull.square() - 0.5) * found.entropy).sum()
    return list(torch.autograd.grad(total, leaves, materialize_grads=True))


def assert_same(ours: SelectedLogProbs, theirs: SelectedLogProbs, leaves: list[Tensor], **tolerance: float) -> None:
    torch.testing.assert_close(ours.log_probs, theirs.log_probs, **tolerance)
    if ours.entropy is not None:
        torch.testing.assert_close(ours.entropy, theirs.entropy, **tolerance)
    for mine, yours in zip(gradients(ours, leaves), gradients(theirs, leaves), strict=True):
        torch.testing.assert_close(mine, yours, **tolerance)


# ---- equality ------------------------------------------------------------------------------------------------------


@given(cases())
def test_values_and_gradients_are_those_of_log_softmax_and_gather(case: Case) -> None:
    assert_same(case.found(), case.plain(), case.leaves, rtol=1e-9, atol=1e-9)


@given(cases())
def test_log_probs_alone_have_the_same_gradients_as_beside_an_entropy(case: Case) -> None:
    pull = torch.randn(case.targets.shape, dtype=torch.float64)
    alone = torch.autograd.grad((case.found(entropy=False).log_probs * pull).sum(), case.leaves)
    beside = torch.autograd.grad((case.found(entropy=True).log_probs * pull).sum(), case.leaves)
    for one, other in zip(alone, beside, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@given(cases(torch.float32), st.integers(1, 200))
def test_the_chunk_never_matters(case: Case, chunk: int) -> None:
    whole, parts = Case(**(vars(case) | {"chunk": 10**6})), Case(**(vars(case) | {"chunk": chunk}))
    assert_same(parts.found(), whole.found(), case.leaves, rtol=1e-4, atol=1e-5)


@given(cases(), st.sampled_from([torch.float64, torch.float32]))
def test_the_form_from_logits_agrees_with_log_softmax_and_gather(case: Case, dtype: torch.dtype) -> None:
    logits = (case.hidden @ case.weight.T).detach().to(dtype).requires_grad_()
    temperature = case.temperature
    leaves = [logits, *([temperature] if isinstance(temperature, Tensor) else [])]
    divided = logits / (temperature.unsqueeze(-1) if isinstance(temperature, Tensor) else temperature)
    ours = log_probs_of(logits, case.targets, temperature=temperature, entropy=True, chunk=case.chunk)
    theirs = plain(divided, case.targets)
    theirs = SelectedLogProbs(theirs.log_probs.to(dtype), None if theirs.entropy is None else theirs.entropy.to(dtype))
    near = 1e-9 if dtype == torch.float64 else 2e-5
    assert_same(ours, theirs, leaves, rtol=near, atol=near)


@pytest.mark.parametrize("chunk", [1, 10, None])
@pytest.mark.parametrize("entropy", [False, True])
def test_gradients_agree_with_finite_differences(chunk: int | None, entropy: bool) -> None:
    warmth = torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([3, IGNORED, 0, 6])
    case = random_case(tokens=4, size=7, temperature=warmth, targets=targets, chunk=chunk)

    def from_hidden(hidden: Tensor, weight: Tensor, bias: Tensor, temperature: Tensor) -> tuple[Tensor, ...]:
        given = {"hidden": hidden, "weight": weight, "bias": bias, "temperature": temperature}
        return tuple(each for each in vars(Case(**(vars(case) | given)).found(entropy)).values() if each is not None)

    def from_logits(logits: Tensor, temperature: Tensor) -> tuple[Tensor, ...]:
        found = log_probs_of(logits, targets, temperature=temperature, entropy=entropy, chunk=chunk)
        return tuple(each for each in vars(found).values() if each is not None)

    assert torch.autograd.gradcheck(from_hidden, (case.hidden, case.weight, case.bias, warmth))
    assert torch.autograd.gradcheck(from_logits, (torch.randn(4, 7, dtype=torch.float64, requires_grad=True), warmth))


def test_two_entries_worked_by_hand() -> None:
    # logits (0, log 3): p = (1/4, 3/4); entropy = 1/4 log 4 + 3/4 log 4/3 = log 4 − 3/4 log 3 = 0.562335…
    # d log p₀ = (1 − 1/4, −3/4) = (0.75, −0.75); at temperature 2 logits are (0, log √3).
    logits = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64, requires_grad=True)
    found = log_probs_of(logits, torch.tensor([0]), entropy=True)
    assert found.entropy is not None
    assert found.log_probs.item() == pytest.approx(math.log(1 / 4))
    assert found.entropy.item() == pytest.approx(math.log(4) - 0.75 * math.log(3))
    (slope,) = torch.autograd.grad(found.log_probs.sum(), logits)
    assert slope.tolist() == [pytest.approx([0.75, -0.75])]
    head_weight = torch.tensor([[0.0], [math.log(3)]], dtype=torch.float64)
    warm = selected_log_probs(torch.ones(1, 1, dtype=torch.float64), head_weight, torch.tensor([1]), temperature=2.0)
    assert warm.log_probs.item() == pytest.approx(0.5 * math.log(3) - math.log(1 + math.sqrt(3)))


# ---- types ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_inputs_give_the_float32_result_of_the_same_numbers(dtype: torch.dtype) -> None:
    """The logits are never rounded: with narrow inputs only the gradients are, once, when they are complete."""
    wide = random_case(tokens=32, size=300, width=16, dtype=torch.float32, chunk=700)
    narrow = {name: getattr(wide, name).detach().to(dtype).requires_grad_() for name in ("hidden", "weight", "bias")}
    same = {name: each.detach().float().requires_grad_() for name, each in narrow.items()}
    ours, exact = Case(**(vars(wide) | narrow)), Case(**(vars(wide) | same))
    found, truth = ours.found(), exact.found()
    assert found.log_probs.dtype == torch.float32
    torch.testing.assert_close(found.log_probs, truth.log_probs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.entropy, truth.entropy, rtol=1e-6, atol=1e-6)
    for mine, right in zip(gradients(found, ours.leaves), gradients(truth, exact.leaves), strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine, right.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_logits_are_widened_before_anything_is_subtracted(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(8, 50) * 5).to(dtype).requires_grad_()
    same = logits.detach().float().requires_grad_()
    targets = torch.randint(50, (8,))
    found, truth = log_probs_of(logits, targets, entropy=True, chunk=100), plain(same, targets)
    torch.testing.assert_close(found.log_probs, truth.log_probs, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.entropy, truth.entropy, rtol=1e-5, atol=1e-5)
    (mine,), (right,) = gradients(found, [logits]), gradients(truth, [same])
    torch.testing.assert_close(mine, right.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_products_of_narrow_types_into_float32_stay_near_the_float32_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """What CUDA does, with its product into a wider type played by one that widens first."""
    product = torch.mm

    def wide(left: Tensor, right: Tensor, *, out_dtype: torch.dtype | None = None, out: Tensor | None = None) -> Tensor:
        assert left.dtype == right.dtype == torch.bfloat16
        assert out_dtype == torch.float32
        return (
            product(left.float(), right.float(), out=out) if out is not None else product(left.float(), right.float())
        )

    base = random_case(tokens=32, size=300, width=16, dtype=torch.float32, chunk=700, temperature=0.7)
    narrow = {name: getattr(base, name).detach().bfloat16().requires_grad_() for name in ("hidden", "weight", "bias")}
    case = Case(**(vars(base) | narrow))
    truth = case.found()
    right = gradients(truth, case.leaves)
    monkeypatch.setattr(lm_head, "operand_type", lambda hidden, weight: torch.bfloat16)
    monkeypatch.setattr(torch, "mm", wide)
    found = case.found()
    torch.testing.assert_close(found.log_probs, truth.log_probs, rtol=1e-6, atol=1e-6)
    for mine, yours in zip(gradients(found, case.leaves), right, strict=True):
        torch.testing.assert_close(mine, yours, rtol=2e-2, atol=2e-2)


def test_hidden_and_weight_may_differ_in_type_and_the_wider_one_rules() -> None:
    case = random_case(dtype=torch.float32)
    hidden = case.hidden.detach().bfloat16().requires_grad_()
    found = Case(**(vars(case) | {"hidden": hidden})).found()
    exact = Case(**(vars(case) | {"hidden": hidden.detach().float().requires_grad_()}))
    torch.testing.assert_close(found.log_probs, exact.found().log_probs, rtol=1e-6, atol=1e-6)
    assert gradients(found, [hidden])[0].dtype == torch.bfloat16


def test_autocast_changes_nothing_on_a_cpu() -> None:
    case = random_case(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = case.found()
        within = gradients(inside, case.leaves)
    outside = case.found()
    assert torch.equal(inside.log_probs, outside.log_probs)
    assert all(torch.equal(*pair) for pair in zip(within, gradients(outside, case.leaves), strict=True))


@pytest.mark.parametrize("shift", [0.0, 100.0, 1e4])
def test_no_log_prob_is_above_zero_and_a_certain_token_has_exactly_zero(shift: float) -> None:
    logits = torch.tensor([[30.0, 0.0, -5.0], [0.0, -200.0, -300.0], [1e-3, 0.0, 0.0]]) + shift
    targets = torch.tensor([0, 0, 0])
    from_logits = log_probs_of(logits, targets).log_probs
    identity = selected_log_probs(logits, torch.eye(3), targets, chunk=2).log_probs
    for found in (from_logits, identity):
        assert (found <= 0).all()
        assert found[1] == 0


def test_a_likely_token_keeps_its_digits_beside_large_logits() -> None:
    # logits (10000, 9990): log p₀ = −log(1 + e⁻¹⁰) = −4.5399e-5, while float32 moves in steps of 1e-3 near 10000.
    logits, targets = torch.tensor([[1e4, 1e4 - 10]]), torch.tensor([0])
    for found in (log_probs_of(logits, targets), selected_log_probs(logits, torch.eye(2), targets, chunk=1)):
        assert found.log_probs.item() == pytest.approx(-4.5399e-5, rel=5e-3)


# ---- what is ignored -----------------------------------------------------------------------------------------------


@given(cases(), st.sampled_from([torch.nan, torch.inf, -torch.inf, 1e300]))
def test_nothing_at_an_ignored_target_reaches_a_value_or_a_gradient(case: Case, junk: float) -> None:
    ignored = case.targets < 0
    dirty = {"hidden": case.hidden.detach().masked_fill(ignored.unsqueeze(-1), junk).requires_grad_()}
    if isinstance(case.temperature, Tensor):
        dirty["temperature"] = (
            case.temperature.detach().masked_fill(ignored, 0.0 if junk > 0 else junk).requires_grad_()
        )
    spoiled = Case(**(vars(case) | dirty))
    found, clean = spoiled.found(), case.found()
    assert torch.equal(found.log_probs, clean.log_probs)
    assert (found.log_probs[ignored] == 0).all()
    assert found.entropy is not None
    assert (found.entropy[ignored] == 0).all()
    for mine, right in zip(gradients(found, spoiled.leaves), gradients(clean, case.leaves), strict=True):
        assert torch.equal(mine, right)
    logits = torch.randn(*case.targets.shape, len(case.weight), dtype=torch.float64)
    spoiled_logits = logits.masked_fill(ignored.unsqueeze(-1), junk).requires_grad_()
    (slope,) = gradients(log_probs_of(spoiled_logits, case.targets, entropy=True), [spoiled_logits])
    assert (slope[ignored] == 0).all()
    assert slope.isfinite().all()


@pytest.mark.parametrize("entropy", [False, True])
def test_a_token_the_loss_gives_no_gradient_to_may_hold_anything(entropy: bool) -> None:
    """A missing log-prob is found downstream and cut from the loss there; its NaN must not come back through the weight."""
    case = random_case()
    hidden = case.hidden.detach().clone()
    hidden[2] = torch.nan
    hidden.requires_grad_()
    kept = torch.tensor([1.0, 1.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    spoiled = Case(**(vars(case) | {"hidden": hidden}))
    found, clean = spoiled.found(entropy), case.found(entropy)
    assert found.log_probs[2].isnan()
    ours = torch.autograd.grad(found.log_probs, spoiled.leaves, grad_outputs=kept)
    right = torch.autograd.grad(clean.log_probs, case.leaves, grad_outputs=kept)
    assert all(torch.equal(*pair) for pair in zip(ours, right, strict=True))
    logits = torch.zeros(6, 3).index_fill(0, torch.tensor(2), torch.nan).requires_grad_()
    (slope,) = torch.autograd.grad(
        log_probs_of(logits, torch.zeros(6, dtype=torch.long)).log_probs, logits, grad_outputs=kept.float()
    )
    assert slope.isfinite().all()


def test_a_gradient_of_nan_at_an_ignored_target_goes_nowhere() -> None:
    case = random_case(targets=torch.tensor([1, 2, IGNORED, 3, 4, 5]))
    harm = torch.ones(6, dtype=torch.float64).index_fill(0, torch.tensor(2), torch.nan)
    found = case.found()
    assert found.entropy is not None
    harmed = torch.autograd.grad([found.log_probs, found.entropy], case.leaves, grad_outputs=[harm, harm])
    clean = case.found()
    assert clean.entropy is not None
    right = torch.autograd.grad((clean.log_probs + clean.entropy).sum(), case.leaves)
    assert all(torch.equal(*pair) for pair in zip(harmed, right, strict=True))


def test_a_nan_in_a_trained_token_is_not_hidden() -> None:
    case = random_case()
    hidden = case.hidden.detach().index_fill(0, torch.tensor(2), torch.nan).requires_grad_()
    found = Case(**(vars(case) | {"hidden": hidden})).found(entropy=False)
    assert torch.autograd.grad(found.log_probs.sum(), hidden)[0][2].isnan().all()
    logits = torch.tensor([[torch.nan, 0.0]], requires_grad=True)
    assert torch.autograd.grad(log_probs_of(logits, torch.tensor([1])).log_probs.sum(), logits)[0].isnan().all()


@pytest.mark.parametrize("shape", [(0,), (2, 0), (3,)])
def test_no_tokens_or_none_that_count_give_exact_zeros(shape: tuple[int, ...]) -> None:
    hidden, weight = torch.randn(*shape, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    targets = torch.full(shape, IGNORED)
    found = selected_log_probs(hidden, weight, targets, entropy=True)
    assert found.log_probs.shape == shape
    for gradient in gradients(found, [hidden, weight]):
        assert (gradient == 0).all()
    logits = torch.randn(*shape, 5, requires_grad=True)
    (slope,) = gradients(log_probs_of(logits, targets, entropy=True), [logits])
    assert slope.shape == logits.shape
    assert (slope == 0).all()


# ---- the vocabulary ------------------------------------------------------------------------------------------------


def test_a_target_outside_the_vocabulary_has_log_prob_minus_infinity_and_no_gradient() -> None:
    case = random_case(vocabulary=torch.tensor([7, 2, 5]), targets=torch.tensor([2, 3, 5, IGNORED, 7, 10]))
    found = case.found()
    assert found.log_probs.isinf().tolist() == [False, True, False, False, False, True]
    assert found.entropy is not None
    assert found.entropy.isfinite().all()
    hidden, weight, _ = torch.autograd.grad(found.log_probs.sum(), case.leaves)
    assert (hidden[[1, 3, 5]] == 0).all()
    assert weight.isfinite().all()
    inside = case.targets[[0, 2, 4]]
    alone = Case(**(vars(case) | {"hidden": case.hidden[[0, 2, 4]], "targets": inside})).found()
    torch.testing.assert_close(weight, torch.autograd.grad(alone.log_probs.sum(), case.weight)[0])


def test_entries_outside_the_vocabulary_are_never_looked_at() -> None:
    case = random_case(vocabulary=torch.tensor([7, 2, 5]), targets=torch.tensor([2, 2, 5, 7, 7, 5]))
    spoiled = case.weight.detach().clone()
    spoiled[[0, 1, 3, 4, 6, 8, 9, 10]] = torch.nan
    other = Case(**(vars(case) | {"weight": spoiled.requires_grad_()}))
    for mine, right in zip(gradients(other.found(), other.leaves), gradients(case.found(), case.leaves), strict=True):
        assert torch.equal(mine, right)


def test_entries_of_probability_zero_leave_values_and_gradients_finite() -> None:
    bias = torch.zeros(11, dtype=torch.float64).index_fill(0, torch.arange(4, 11), -torch.inf).requires_grad_()
    warmth = torch.full((6,), 1.3, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 1, 2, 3, 0, 1])
    shut = random_case(bias=bias, targets=targets, temperature=warmth, chunk=13)
    short = random_case(bias=None, targets=targets, temperature=warmth, vocabulary=torch.arange(4))
    closed = gradients(shut.found(), [shut.hidden, shut.weight, warmth])
    for mine, right in zip(closed, gradients(short.found(), [short.hidden, short.weight, warmth]), strict=True):
        torch.testing.assert_close(mine, right)
    logits = torch.tensor([[0.0, -torch.inf, 1.0]], dtype=torch.float64, requires_grad=True)
    found = log_probs_of(logits, torch.tensor([2]), entropy=True)
    two = plain(torch.tensor([[0.0, 1.0]], dtype=torch.float64), torch.tensor([1]))
    torch.testing.assert_close(found.entropy, two.entropy)
    (slope,) = gradients(found, [logits])
    assert slope.isfinite().all()
    assert slope[0, 1] == 0


# ---- what it costs -------------------------------------------------------------------------------------------------


class Watch(TorchDispatchMode):
    """Counts matrix products and notes how many numbers each new tensor has room for; views are not new."""

    def __init__(self) -> None:
        super().__init__()
        self.products = 0
        self.made: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.products += func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_)
        given = {each.untyped_storage().data_ptr() for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        for each in tree_leaves(result):
            if isinstance(each, Tensor) and each.untyped_storage().data_ptr() not in given:
                self.made.append(each.untyped_storage().nbytes() // each.element_size())
        return result

    @property
    def largest(self) -> int:
        return max(self.made)


@pytest.mark.parametrize("entropy", [False, True])
def test_no_tensor_of_tokens_times_vocabulary_is_ever_made(entropy: bool) -> None:
    case = random_case(tokens=60, size=100, width=5, chunk=400)
    with Watch() as watch:
        gradients(case.found(entropy), case.leaves)
    assert watch.largest == 500  # the weight; a tile is 400, all logits are 6000


@pytest.mark.parametrize(("frozen", "products"), [(None, 4), ("weight", 3), ("hidden", 3)])
def test_what_is_frozen_costs_no_product(frozen: str | None, products: int) -> None:
    case = random_case(bias=None)
    if frozen is not None:
        getattr(case, frozen).requires_grad_(False)
    with Watch() as watch:
        gradients(case.found(), case.leaves)
    assert watch.products == products  # one forward, one again in backward, one for each gradient


def test_logits_without_a_flat_view_are_not_copied() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 2, 9, 20, requires_grad=True)
    targets = torch.randint(20, (2, 2, 8))
    with Watch() as watch, torch.no_grad():
        log_probs_of(logits[..., :-1, :], targets, chunk=60)
    assert watch.largest == 60  # one tile; all logits are 640
    found, truth = log_probs_of(logits[..., :-1, :], targets, chunk=60), plain(logits[..., :-1, :], targets)
    torch.testing.assert_close(found.log_probs, truth.log_probs)
    (mine,), (right,) = (torch.autograd.grad(each.log_probs.square().sum(), logits) for each in (found, truth))
    torch.testing.assert_close(mine, right)
    turned = log_probs_of(logits[0, 0, :8].T.contiguous().T, targets[0, 0], temperature=0.5)
    torch.testing.assert_close(turned.log_probs, plain(logits[0, 0, :8] * 2, targets[0, 0]).log_probs)


def test_backward_from_logits_makes_nothing_of_their_size_but_their_gradient() -> None:
    logits = torch.randn(30, 20, requires_grad=True)
    found = log_probs_of(logits, torch.zeros(30, dtype=torch.long), entropy=True, chunk=60)
    assert found.entropy is not None
    weighted = (found.log_probs + found.entropy).sum()
    with Watch() as watch:
        weighted.backward()
    assert sorted(watch.made)[-2:] == [60, 600]


def test_gradients_do_not_depend_on_which_of_them_are_asked_for() -> None:
    warmth = torch.full((6,), 0.8, dtype=torch.float64, requires_grad=True)
    case = random_case(temperature=warmth)
    every = gradients(case.found(), case.leaves)
    for index in range(4):
        for place, leaf in enumerate(case.leaves):
            leaf.requires_grad_(place == index)
        (one,) = gradients(case.found(), case.leaves)
        for leaf in (case.hidden, case.weight, case.bias, warmth):
            assert leaf is not None
            leaf.requires_grad_()
        assert torch.equal(one, every[index])


def test_arguments_are_left_as_they_were() -> None:
    case = random_case(vocabulary=torch.tensor([1, 3, 2]), targets=torch.tensor([1, 2, 3, IGNORED, 1, 1]))
    before = {name: each.detach().clone() for name, each in vars(case).items() if isinstance(each, Tensor)}
    gradients(case.found(), case.leaves)
    assert all(torch.equal(getattr(case, name), value) for name, value in before.items())


COMPILED = """
import torch
from trimtab.log_probs.public import log_probs_of, selected_log_probs
torch.manual_seed(0)
hidden, weight, logits = (torch.randn(*shape, requires_grad=True) for shape in ((6, 4), (9, 4), (6, 9)))
targets = torch.tensor([1, 8, -100, 0, 3, 3])
forms = {
    lambda: log_probs_of(logits, targets, temperature=0.7, entropy=True): [logits],
    lambda: selected_log_probs(hidden, weight, targets, temperature=0.7, entropy=True, chunk=30): [hidden, weight],
}
for form, leaves in forms.items():
    results = []
    for found in (torch.compile(form, fullgraph=True, backend="aot_eager")(), form()):
        slopes = torch.autograd.grad((found.log_probs + 2 * found.entropy).sum(), leaves)
        results.append([found.log_probs, found.entropy, *slopes])
    torch.testing.assert_close(*results)
    print("equal")
"""


def test_both_forms_compile_as_one_graph() -> None:
    """In a process of its own: the checker of shapes that the tests run under cannot be compiled."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.stdout.split() == ["equal", "equal"], done.stderr


# ---- what is refused -----------------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "hidden": torch.zeros(2, 3, 4),
    "weight": torch.zeros(5, 4),
    "targets": torch.zeros(2, 3, dtype=torch.long),
}
BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"weight": torch.zeros(4, 5)},
        "weight needs shape [entries, width] with the width of hidden (2, 3, 4), got (4, 5)",
    ),
    ({"weight": torch.zeros(0, 4)}, "weight needs shape [entries, width]"),
    ({"weight": torch.zeros(5, 4, dtype=torch.long)}, "weight needs floating-point numbers, got torch.int64"),
    ({"weight": torch.zeros(5, 4, device="meta")}, "weight needs to be on cpu, got meta"),
    ({"hidden": torch.zeros(2, 3, 4, dtype=torch.long)}, "hidden needs floating-point numbers, got torch.int64"),
    ({"bias": torch.zeros(4)}, "bias needs one number per vocabulary entry (5,), got (4,)"),
    ({"targets": torch.zeros(2, 2, dtype=torch.long)}, "targets need one id per token (2, 3)"),
    ({"targets": torch.zeros(2, 3)}, "targets need int32 or int64 ids, got torch.float32"),
    (
        {"targets": torch.full((2, 3), 5)},
        "targets need ids below 5 (the vocabulary), or negative to be ignored, got 5",
    ),
    ({"temperature": torch.ones(3)}, "temperature needs one floating-point number, or one per token (2, 3)"),
    ({"temperature": torch.ones(2, 3, device="meta")}, "temperature needs to be on cpu, got meta"),
    ({"temperature": 0.0}, "temperature needs to be above 0 and finite, got 0.0"),
    ({"temperature": math.nan}, "temperature needs to be above 0 and finite, got nan"),
    ({"vocabulary": torch.tensor([True] * 5)}, "vocabulary needs one dimension of int32 or int64 ids"),
    ({"vocabulary": torch.tensor([], dtype=torch.long)}, "vocabulary needs one dimension of int32 or int64 ids"),
    ({"vocabulary": torch.tensor([1, 5])}, "vocabulary needs ids from 0 to 4, got 5"),
    ({"vocabulary": torch.tensor([1, -1])}, "vocabulary needs ids from 0 to 4, got -1"),
    ({"vocabulary": torch.tensor([1, 2, 1])}, "vocabulary needs each id once, got 1"),
    ({"chunk": 0}, "chunk needs to be at least 1, got 0"),
]


@pytest.mark.parametrize(("wrong", "message"), BAD, ids=[message for _, message in BAD])
def test_tensors_that_do_not_fit_are_refused_in_words(wrong: dict[str, Any], message: str) -> None:
    # Unwrapped: the checker of shapes that the tests run under would speak first, and users run without it.
    expected = ConfigError if set(wrong) == {"chunk"} or isinstance(wrong.get("temperature"), float) else InputError
    with pytest.raises(expected, match=re.escape(message)):
        inspect.unwrap(selected_log_probs)(**(GOOD | wrong))


@pytest.mark.parametrize("logits", [torch.zeros(2, 0), torch.zeros(2, 5, dtype=torch.long), torch.tensor(0.0)])
def test_logits_that_cannot_be_logits_are_refused_in_words(logits: Tensor) -> None:
    with pytest.raises(InputError, match="logits need floating-point numbers"):
        inspect.unwrap(log_probs_of)(logits, torch.zeros(2, dtype=torch.long))


def test_int32_targets_and_a_temperature_of_no_dimension_are_welcome() -> None:
    case = random_case(temperature=torch.tensor(0.7, dtype=torch.float64, requires_grad=True))
    narrow = Case(**(vars(case) | {"targets": case.targets.int(), "vocabulary": torch.arange(11, dtype=torch.int32)}))
    plainly = Case(**(vars(case) | {"temperature": 0.7}))
    torch.testing.assert_close(narrow.found().log_probs, plainly.found().log_probs)
    assert gradients(narrow.found(), narrow.leaves)[3].shape == ()
