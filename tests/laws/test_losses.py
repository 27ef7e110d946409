"""What holds for every loss, reduction, layout and correction. Each test is named for the family of silent faults it excludes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.laws.batches import Sample, samples
from tests.laws.objectives import CORRECTIONS, LOSSES, REDUCTIONS, WHOLE, Setup, gradients, same, setups, tensors
from trimtab.config import losses as config
from trimtab.config.losses import KlCov, KlPenalty, Objective
from trimtab.core.correct import Corrected
from trimtab.core.reduce import Denominator
from trimtab.losses.policy import policy_loss
from trimtab.losses.table import OBJECTIVES

pytestmark = [  # what is probably not meant still has to hold the laws
    pytest.mark.filterwarnings("ignore:.* under a bypass rule with a weight"),
    pytest.mark.filterwarnings("ignore:Luspo with reduction"),
]

HARMFUL = (float("nan"), float("inf"), -float("inf"), 1e10, -1e10)
PER_TOKEN = ("behavior", "proximal", "current", "reference", "entropy", "advantages")


def test_every_loss_is_held_to_the_laws() -> None:
    assert {type(loss) for loss in (*LOSSES, *WHOLE)} == set(OBJECTIVES)


# --- masked values never matter --------------------------------------------------------------------------------------


@given(setups(), samples(), st.sampled_from(HARMFUL))
def test_masked_values_never_matter(setup: Setup, sample: Sample, harm: float) -> None:
    data = tensors(sample)
    poisoned = data | {name: torch.where(data["mask"], data[name], harm) for name in PER_TOKEN}
    value, grads = gradients(setup, data)
    other, changed = gradients(setup, poisoned)
    assert torch.equal(value, other)
    for name in grads:
        assert torch.equal(grads[name], changed[name])
        assert not changed[name][~sample.mask].any()


@given(setups(), samples(), st.sampled_from(HARMFUL[:3]), st.sampled_from(["proximal", "current", "reference"]))
def test_a_missing_log_prob_is_a_token_that_was_never_trained(
    setup: Setup, sample: Sample, harm: float, policy: str
) -> None:
    data = tensors(sample)
    holes = torch.zeros_like(sample.mask)
    holes[::2, ::3] = True
    kl = {"kl": KlPenalty(coefficient=0.3)}  # so that every policy is read
    value, grads = gradients(setup, data | {policy: torch.where(holes, harm, data[policy])}, **kl)
    if setup.rule == "bypass-token-tis" and policy == "proximal":
        return  # not read
    other, absent = gradients(setup, data | {"mask": sample.mask & ~holes}, **kl)
    assert torch.equal(value, other)
    assert torch.equal(grads["current"], absent["current"])
    assert not grads["current"][holes].any()


# --- rows without advantage -------------------------------------------------------------------------------------------


def _with_and_without_the_first_row(loss: Objective, data: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The gradient where the first row has advantage 0, and where it is left out of the same step."""
    data["advantages"][0] = 0.0
    setup, denominator = Setup(loss, REDUCTIONS[0], "none", extras=False), Denominator.of(data["mask"])
    without = data["mask"].clone()
    without[0] = False
    first, second = (
        gradients(setup, data | {"mask": mask}, denominator=denominator)[1]["current"]
        for mask in (data["mask"], without)
    )
    return first, second


@given(st.sampled_from([*LOSSES, *WHOLE]), samples())
def test_a_loss_to_which_a_row_without_advantage_matters_says_so(loss: Objective, sample: Sample) -> None:
    whole, without = _with_and_without_the_first_row(loss, tensors(sample))
    if not loss.acts_without_advantage:
        same(whole, without)


@pytest.mark.parametrize("loss", [*LOSSES, *WHOLE], ids=lambda loss: loss.kind)
def test_a_loss_that_says_so_acts_without_advantage(loss: Objective) -> None:
    generator = torch.Generator().manual_seed(0)
    behavior = -3 * torch.rand(6, 9, generator=generator)
    behavior[0] -= 5.0  # far from the other rows: with it the mean log-prob is another
    shifts = (torch.randn(6, 9, generator=generator) * size for size in (0.3, 0.1))
    proximal, current = (behavior + shift for shift in shifts)
    advantages = torch.randn(6, 1, generator=generator).repeat(1, 9)
    sample = Sample(behavior, proximal, current, advantages, torch.ones(6, 9, dtype=torch.bool), (9,) * 6)
    whole, without = _with_and_without_the_first_row(loss, tensors(sample))
    assert torch.allclose(whole, without) != loss.acts_without_advantage


@pytest.mark.parametrize("loss", [*LOSSES, *WHOLE], ids=lambda loss: loss.kind)
def test_a_loss_that_looks_at_its_call_and_no_other_depends_on_what_else_is_in_it(loss: Objective) -> None:
    generator = torch.Generator().manual_seed(1)
    behavior = -3 * torch.rand(6, 9, generator=generator)
    behavior[:2] -= 5.0
    proximal, current = (behavior + size * torch.randn(6, 9, generator=generator) for size in (0.3, 0.6))
    advantages = torch.randn(6, 9, generator=generator)
    advantages[:2] -= 2.0  # the rows of the first part are another sample: means and shares over it are others
    data = tensors(Sample(behavior, proximal, current, advantages, torch.ones(6, 9, dtype=torch.bool), (9,) * 6))
    setup, denominator = Setup(loss, REDUCTIONS[0], "none", extras=False), Denominator.of(data["mask"])
    whole = gradients(setup, data, denominator=denominator)[1]["current"]
    parts = [
        gradients(setup, {name: each[rows] for name, each in data.items()}, denominator=denominator)[1]["current"]
        for rows in (slice(0, 2), slice(2, 6))
    ]
    assert torch.allclose(torch.cat(parts), whole) != loss.looks_at_call


@given(setups(), samples())
def test_a_loss_that_does_not_is_proportional_to_the_advantage(setup: Setup, sample: Sample) -> None:
    if setup.loss.acts_without_advantage or setup.extras:
        return
    data = tensors(sample)
    value, grads = gradients(setup, data)
    other, twice = gradients(setup, data | {"advantages": 2 * data["advantages"]})
    same(other, 2 * value)
    same(twice["current"], 2 * grads["current"])


@given(setups(), samples(), st.floats(0.1, 10.0))
def test_a_loss_proportional_to_the_advantage_is_so_sequence_by_sequence(
    setup: Setup, sample: Sample, factor: float
) -> None:
    """As trainers have it that divide the advantages of each sequence by its own count."""
    if not setup.loss.proportional_to_advantage or setup.extras or setup.rule == "m2po":
        return
    data = tensors(sample)
    factors = torch.where(torch.arange(len(sample.lengths)) % 2 == 0, factor, 1.0).double()[:, None]
    _, grads = gradients(setup, data)
    _, scaled = gradients(setup, data | {"advantages": factors * data["advantages"]})
    same(scaled["current"], factors * grads["current"])


# --- layouts ----------------------------------------------------------------------------------------------------------


@given(setups(), samples())
def test_packed_equals_padded(setup: Setup, sample: Sample) -> None:
    data, there = tensors(sample), sample.there()
    bounds = sample.packed()["cu_seqlens"]
    packed = {name: each if name == "group" else each[there] for name, each in data.items()}
    value, grads = gradients(setup, data)
    if sum(sample.lengths) == 0:
        return
    other, flat = gradients(setup, packed, cu_seqlens=bounds)
    same(other, value)
    for name in grads:
        same(flat[name], grads[name][there])


@given(setups(), samples(), st.integers(1, 3), st.sampled_from(HARMFUL))
def test_padding_is_invisible(setup: Setup, sample: Sample, extra: int, harm: float) -> None:
    data = tensors(sample)
    wide = data | {name: torch.nn.functional.pad(data[name], (0, extra), value=harm) for name in PER_TOKEN}
    wide["mask"] = torch.nn.functional.pad(data["mask"], (0, extra))
    value, grads = gradients(setup, data)
    other, padded = gradients(setup, wide)
    same(other, value)
    for name in grads:
        same(padded[name][:, :-extra], grads[name])
        assert not padded[name][:, -extra:].any()


@given(setups(), samples(spread=30.0), st.sampled_from([0.0, 120.0, -120.0, 1e6]))
def test_loss_and_gradient_are_finite_however_far_the_policies_are_apart(
    setup: Setup, sample: Sample, shift: float
) -> None:
    data = tensors(sample, kind=torch.float32)
    data["current"] = data["current"] + torch.where(data["advantages"] > 0, shift, -shift)
    data["behavior"][::2] -= shift / 2
    value, grads = gradients(setup, data)
    assert value.isfinite()
    assert all(each.isfinite().all() for each in grads.values())


@pytest.mark.parametrize("loss", [config.ImportancePg(), config.Clip(), config.Gspo()], ids=str)
def test_a_ratio_that_overflows_is_the_largest_number_and_not_zero(loss: Objective) -> None:
    current = torch.zeros(1, 2, requires_grad=True)
    found = policy_loss(
        loss,
        current=current,
        proximal=torch.full((1, 2), -500.0),
        advantages=torch.full((1,), -1.0),
        mask=torch.ones(1, 2, dtype=torch.bool),
    )
    found.loss.backward()
    assert current.grad is not None
    assert found.loss > 1e37
    assert (current.grad > 1e37).all()
    assert current.grad.isfinite().all()


@given(setups(), samples())
def test_bfloat16_gives_the_loss_of_its_upcast(setup: Setup, sample: Sample) -> None:
    data = tensors(sample, kind=torch.bfloat16)
    high = {name: each.float() if each.is_floating_point() else each for name, each in data.items()}
    value, grads = gradients(setup, data)
    other, upcast = gradients(setup, high)
    assert value.dtype == torch.float32
    assert torch.equal(value, other)
    assert grads["current"].dtype == torch.bfloat16
    assert torch.equal(grads["current"], upcast["current"].bfloat16())  # terms are added up before they are rounded


# --- a removed row never votes ---------------------------------------------------------------------------------------


@given(setups(), samples(rows=st.integers(2, 5)), st.integers(0, 4))
def test_a_removed_row_never_votes(setup: Setup, sample: Sample, which: int) -> None:
    """A row under a False mask, and the row not there at all, are one: no mean, order, denominator or prompt sees it."""
    data, row = tensors(sample), which % len(sample.lengths)
    others = torch.arange(len(sample.lengths)) != row
    value, grads = gradients(setup, data | {"mask": sample.mask & others[:, None]})
    other, without = gradients(setup, {name: each[others] for name, each in data.items()})
    same(value, other)
    for name in grads:
        same(grads[name][others], without[name])
        assert not grads[name][~others].any()


@given(setups([loss for loss in LOSSES if getattr(loss, "scope", "kept") == "kept"]), samples(rows=st.integers(2, 5)))
def test_a_rejected_row_never_votes(setup: Setup, sample: Sample) -> None:
    """Rejected by a gate, with denominator kept: as if the row were not there."""
    data = tensors(sample)
    far = torch.arange(len(sample.lengths)) % 2 == 1
    data["proximal"] = data["proximal"] - 3.0 * far[:, None]
    data["behavior"] = torch.where(far[:, None], data["behavior"], data["proximal"])
    rule = CORRECTIONS["geo-rs, kept"]
    mean = (data["proximal"] - data["behavior"]).where(sample.mask, 0.0).sum(-1) / sample.mask.sum(-1).clamp(min=1)
    if (mean[far & sample.mask.any(-1)].abs() < 0.2).any():
        return
    plain = Setup(setup.loss, setup.reduction, "none", extras=False)
    value, grads = gradients(plain, data, correction=rule)
    other, without = gradients(plain, {name: each[~far] for name, each in data.items()}, correction=rule)
    same(value, other)
    same(grads["current"][~far], without["current"])
    assert not grads["current"][far].any()


@given(setups(), samples(rows=st.integers(1, 4)))
def test_everything_rejected_is_an_exact_zero(setup: Setup, sample: Sample) -> None:
    data = tensors(sample)
    nothing = torch.zeros_like(sample.mask)
    verdict = Corrected(torch.zeros_like(data["current"]), nothing, sample.mask, torch.zeros_like(data["current"]), {})
    plain = Setup(setup.loss, setup.reduction, "none", extras=False)
    for found in (
        gradients(plain, data, correction=verdict),
        gradients(plain, data | {"mask": nothing}),
    ):
        value, grads = found
        assert value == 0
        assert torch.equal(grads["current"], torch.zeros_like(data["current"]))


# --- group identity --------------------------------------------------------------------------------------------------


@given(samples(rows=st.integers(2, 5)), st.sampled_from(LOSSES), st.randoms(use_true_random=False))
def test_prompts_are_known_by_their_id_and_not_by_their_place(sample: Sample, loss: Objective, random: Any) -> None:
    data = tensors(sample)
    setup = Setup(loss, config.Reduction(mode="prompt-mean"), "none", extras=True)
    order = list(range(len(sample.lengths)))
    random.shuffle(order)
    renamed = {name: each[order] for name, each in data.items()} | {"group": data["group"][order] * 1000 - 7}
    value, grads = gradients(setup, data)
    other, moved = gradients(setup, renamed)
    same(other, value)
    same(moved["current"], grads["current"][order])


# --- padding rows and duplicates weigh zero --------------------------------------------------------------------------


@given(setups(), samples(), st.integers(1, 3))
def test_padding_rows_and_duplicates_weigh_zero(setup: Setup, sample: Sample, copies: int) -> None:
    """Rows cloned to fill a batch, with their real advantages and a False mask, change nothing."""
    data = tensors(sample)
    full = {name: torch.cat([each, each[:1].expand(copies, *each.shape[1:])]) for name, each in data.items()}
    full["mask"] = torch.cat([sample.mask, torch.zeros(copies, sample.mask.shape[1], dtype=torch.bool)])
    value, grads = gradients(setup, data)
    other, filled = gradients(setup, full)
    same(other, value)
    for name in grads:
        same(filled[name][:-copies], grads[name])
        assert not filled[name][-copies:].any()


# --- index i is the same token everywhere ----------------------------------------------------------------------------


@given(setups(LOSSES), samples(), st.randoms(use_true_random=False))
def test_index_i_is_the_same_token_everywhere(setup: Setup, sample: Sample, random: Any) -> None:
    """Tokens reordered alike in every tensor carry their gradients along."""
    data = tensors(sample)
    if isinstance(setup.loss, KlCov):  # covariances are equal but for rounding here, and rounding then chooses
        assume(int(sample.mask.sum()) > 2 and len(data["advantages"][sample.mask].unique()) > 1)
    order = list(range(sample.mask.shape[1]))
    random.shuffle(order)
    moved = {name: each if name == "group" else each[:, order] for name, each in data.items()}
    value, grads = gradients(setup, data)
    other, found = gradients(setup, moved)
    same(other, value)
    for name in grads:
        same(found[name], grads[name][:, order])


@given(setups(), samples())
def test_one_advantage_per_sequence_is_that_advantage_on_each_token(setup: Setup, sample: Sample) -> None:
    data = tensors(sample)
    row = data["advantages"][:, 0]
    value, grads = gradients(setup, data | {"advantages": row})
    other, spread = gradients(setup, data | {"advantages": row[:, None].expand_as(data["advantages"])})
    assert torch.equal(value, other)
    assert torch.equal(grads["current"], spread["current"])


# --- the weight is the one named -------------------------------------------------------------------------------------


@given(st.sampled_from([*LOSSES, *WHOLE]), st.sampled_from(REDUCTIONS), samples())
def test_the_weight_is_the_one_named_and_counts_once(loss: Objective, reduction: Any, sample: Sample) -> None:
    """Twice the weight is twice the gradient; weight 0 is none, even where a sibling has some."""
    if getattr(loss, "weights", None) == "inside":
        return  # VESPO with its weights inside the product is not linear in them, by its own definition
    data = tensors(sample)
    setup = Setup(loss, reduction, "none", extras=False)
    draw = torch.Generator().manual_seed(0)
    weight = torch.rand(sample.mask.shape, generator=draw, dtype=torch.float64) + 0.5

    def verdict(weight: Tensor) -> Corrected:
        return Corrected(weight, sample.mask, sample.mask, torch.zeros_like(weight), {})

    value, grads = gradients(setup, data, correction=verdict(weight))
    double, twice = gradients(setup, data, correction=verdict(2 * weight))
    same(double, 2 * value)
    same(twice["current"], 2 * grads["current"])
    assert gradients(setup, data, correction=verdict(0 * weight))[0] == 0 or getattr(loss, "weights", "") == "geometric"


@given(setups(), samples())
def test_only_the_policies_named_are_read(setup: Setup, sample: Sample) -> None:
    """Decoupled divides by proximal, bypass by behavior; what no one names may hold anything."""
    data = tensors(sample)
    read = {"current", "proximal"} if setup.correction is None else {"current", *setup.correction.needs}
    read |= {"behavior"} if setup.rule == "bypass-token-tis" else {"proximal"}
    read |= {"reference"} if setup.extras else set()
    unread = {
        name: torch.full_like(data[name], float("nan"))
        for name in ("behavior", "proximal", "reference")
        if name not in read
    }
    value, grads = gradients(setup, data)
    other, same_grads = gradients(setup, data | unread)
    assert torch.equal(value, other)
    assert torch.equal(grads["current"], same_grads["current"])


@given(setups(), samples())
def test_only_the_current_policy_and_the_entropy_receive_a_gradient(setup: Setup, sample: Sample) -> None:
    data = tensors(sample)
    frozen = ("behavior", "proximal", "reference", "advantages")
    data |= {name: data[name].clone().requires_grad_() for name in frozen}
    gradients(setup, data)
    assert all(data[name].grad is None for name in frozen)


@given(setups(), samples())
def test_a_correction_handed_in_is_the_correction_worked_out_here(setup: Setup, sample: Sample) -> None:
    from trimtab.core.correct import correct

    if setup.correction is None:
        return
    data = tensors(sample)
    names = ("behavior", "proximal", "current", "advantages", "mask")
    whole = correct(setup.correction, **{name: data[name] for name in names})
    value, grads = gradients(setup, data)
    other, handed = gradients(setup, data, correction=whole)
    same(other, value)
    same(handed["current"], grads["current"])


# --- metrics and the host --------------------------------------------------------------------------------------------


class NothingRead(TorchDispatchMode):
    """Fails when a number leaves the tensors."""

    READS = ("_local_scalar_dense", "nonzero", "unique", "masked_select", "is_nonzero")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(name in str(func) for name in self.READS), f"{func} reads a number on the host"
        return func(*args, **(kwargs or {}))


@given(setups(), samples())
def test_no_number_is_read_on_the_host_and_metrics_wait_to_be_asked(setup: Setup, sample: Sample) -> None:
    data = tensors(sample, kind=torch.float32)
    if setup.reduction.mode == "prompt-mean":
        return  # checked on the host where the host holds the data, asserted on the device elsewhere
    with NothingRead():
        found = policy_loss(setup.loss, **data, **setup.settings())
        assert len(found.metrics._found) <= 1  # the run-time type checker of the tests looks at one
        read = dict(found.metrics)
    for name, value in read.items():
        assert value.shape == ()
        assert not value.requires_grad
        assert not value.isnan(), name
        assert name.startswith("gate/") or value.isfinite(), name
    assert len(read) == len(found.metrics)


# --- all of it at once -----------------------------------------------------------------------------------------------


def _disturbed(data: dict[str, Tensor], seed: int) -> tuple[dict[str, Tensor], Tensor]:
    """The same batch, rows in another order, cloned rows to fill it, wider, poisoned where masked, packed; and where each went."""
    draw = torch.Generator().manual_seed(seed)
    rows, width = data["mask"].shape
    order = torch.cat([torch.randperm(rows, generator=draw), torch.tensor([0, 0])])
    wide = {name: torch.nn.functional.pad(data[name][order], (0, 2), value=float("nan")) for name in PER_TOKEN}
    mask = torch.nn.functional.pad(data["mask"][order], (0, 2))
    mask[rows:] = False
    wide = {name: torch.where(mask, each, float("inf")).flatten() for name, each in wide.items()}
    bounds = torch.arange(0, (rows + 2) * (width + 2) + 1, width + 2)
    return wide | {"mask": mask.flatten(), "group": data["group"][order], "cu_seqlens": bounds}, order[:rows]


@pytest.mark.parametrize("loss", [*LOSSES, *WHOLE], ids=str)
def test_every_loss_under_each_reduction_and_each_correction_survives_all_of_it_at_once(loss: Objective) -> None:
    sample = Sample(*_fixed(), lengths=(6, 1, 4, 5, 0))
    data = tensors(sample)
    moved, order = _disturbed(data, seed=1)
    rules = list(CORRECTIONS)
    pairs = {(reduction, rules[place % len(rules)]) for place, reduction in enumerate(REDUCTIONS)}
    pairs |= {(REDUCTIONS[place % len(REDUCTIONS)], rule) for place, rule in enumerate(reversed(rules))}
    for reduction, rule in pairs:
        setup = Setup(loss, reduction, rule, extras=True)
        value, grads = gradients(setup, data)
        other, found = gradients(setup, moved)
        same(other, value)
        for name in grads:
            back = found[name].reshape(len(order) + 2, -1)[: len(order), :-2]
            same(back, grads[name][order])


def _fixed() -> tuple[Tensor, ...]:
    draw = torch.Generator().manual_seed(5)

    def noise(scale: float) -> Tensor:
        return torch.randn(5, 6, generator=draw) * scale

    behavior = -noise(1.0).abs() - 0.1
    proximal = behavior + noise(0.15)
    mask = torch.arange(6) < torch.tensor([6, 1, 4, 5, 0])[:, None]
    mask[0, 2] = mask[3, 0] = False
    return behavior, proximal, proximal + noise(0.3), noise(1.0), mask
