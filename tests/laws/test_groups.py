"""Weights normalised by group, and weights that are the product over a turn."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trimtab
from tests.laws.batches import Sample, samples
from tests.laws.test_corrections import picked, same
from trimtab import Correction, Weight
from trimtab.config.correction import WeightLevel
from trimtab.core.correct import correct
from trimtab.errors import ConfigError, InputError
from trimtab.plugins.hook import Hook

LEVELS = [level for level in get_args(WeightLevel) if level != "one"]
BY_SEQUENCE = ("geometric", "sequence")


def by_group(level: str) -> Correction:
    return Correction(weight=Weight(level=level, upper=4.0), normalize="group")


def groups_of(sample: Sample, number: int = 2) -> torch.Tensor:
    """Ids far apart and out of order."""
    return torch.tensor([(7, -3, 2**40)[row % number] for row in range(len(sample.lengths))])


@pytest.mark.parametrize("level", LEVELS)
@given(samples())
def test_the_mean_weight_of_each_group_is_one(level: str, sample: Sample) -> None:
    group = groups_of(sample)
    wide = sample.with_tensors(**{name: each.double() for name, each in sample.tensors().items() if name != "mask"})
    out = correct(by_group(level), **wide.tensors(), group=group)
    for name in group.unique():
        rows = group == name
        weight, mask = out.weight[rows], sample.mask[rows]
        each = weight.amax(-1)[mask.any(-1)] if level in BY_SEQUENCE else weight[mask]
        if len(each) and each.max() > 0:
            plain = correct(Correction(weight=Weight(level=level, upper=4.0)), **wide.tensors()).weight[rows]
            assert (
                float(each.mean()) == pytest.approx(1.0) or float(plain.max()) < 1e-7
            )  # nothing is divided by next to nothing


@pytest.mark.parametrize("level", LEVELS)
@given(samples())
def test_one_group_is_the_batch_and_each_group_is_one_alone(level: str, sample: Sample) -> None:
    everything = sample.tensors()
    rule = by_group(level)
    one = correct(rule, **everything, group=torch.full((len(sample.lengths),), 5))
    batch = correct(rule.but(normalize="batch"), **everything)
    torch.testing.assert_close(one.weight, batch.weight, rtol=2e-6, atol=1e-7)
    group = groups_of(sample)
    whole = correct(rule, **everything, group=group)
    for name in group.unique():
        rows = group == name
        alone = correct(rule, **{key: each[rows] for key, each in everything.items()}, group=group[rows])
        torch.testing.assert_close(alone.weight, whole.weight[rows], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("level", LEVELS)
@given(samples(), st.randoms(use_true_random=False))
def test_layouts_orders_and_names_of_groups_do_not_matter(level: str, sample: Sample, random) -> None:
    group, rule = groups_of(sample, 3), by_group(level)
    padded = correct(rule, **sample.tensors(), group=group)
    same(padded, correct(rule, **sample.packed(), group=group), sample.there())
    order = list(range(len(sample.lengths)))
    random.shuffle(order)
    moved = correct(rule, **{name: each[order] for name, each in sample.tensors().items()}, group=group[order] * -2)
    same(picked(padded, order), moved)


@given(samples())
def test_on_policy_weights_are_one_in_every_group(sample: Sample) -> None:
    level_with = sample.with_tensors(proximal=sample.behavior)
    for level in LEVELS:
        out = correct(by_group(level), **level_with.tensors(), group=groups_of(sample))
        assert torch.equal(out.weight, sample.mask.float())


def test_group_means_worked_by_hand() -> None:
    # group 0: sequences of ratios (2, 2) and (1); by token their mean is 5/3, by sequence (geometric) (2 + 1)/2 = 1.5. Group 1: 4 alone.
    behavior = torch.full((3, 2), -3.0)
    proximal = behavior + torch.tensor([[2.0, 2.0], [1.0, 9.0], [4.0, 4.0]]).log()
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    given = {"behavior": behavior, "proximal": proximal, "mask": mask, "group": torch.tensor([0, 0, 1])}
    out = correct(Correction(weight=Weight(level="token"), normalize="group"), **given)
    assert out.weight.flatten().tolist() == pytest.approx([1.2, 1.2, 0.6, 0.0, 1.0, 1.0], rel=1e-5)
    out = correct(Correction(weight=Weight(level="geometric"), normalize="group"), **given)
    assert out.weight.flatten().tolist() == pytest.approx([4 / 3, 4 / 3, 2 / 3, 0.0, 1.0, 1.0], rel=1e-5)


def test_turns_multiply_their_own_ratios() -> None:
    # two turns: ratios 2, 3 and, after a token of another's, ½; products 6 and ½, geometric means √6 and ½, over all 3
    behavior = torch.full((1, 4), -3.0)
    proximal = behavior + torch.tensor([[2.0, 3.0, 7.0, 0.5]]).log()
    mask = torch.tensor([[True, True, False, True]])
    expected = {
        "segment_product": [6.0, 6.0, 0.0, 0.5],
        "segment": [math.sqrt(6), math.sqrt(6), 0.0, 0.5],
        "sequence": [3.0, 3.0, 0.0, 3.0],
    }
    for level, weights in expected.items():
        out = correct(Correction(weight=Weight(level=level)), behavior=behavior, proximal=proximal, mask=mask)
        assert out.weight[0].tolist() == pytest.approx(weights, rel=1e-5), level


@given(samples())
def test_one_turn_is_the_sequence(sample: Sample) -> None:
    whole = sample.with_tensors(mask=sample.there())  # no holes: each sequence is one turn
    turn, sequence = (
        correct(Correction(weight=Weight(level=each)), **whole.tensors()) for each in ("segment_product", "sequence")
    )
    assert torch.equal(turn.weight, sequence.weight)


def test_a_loss_takes_groups_and_what_is_missing_is_named() -> None:
    log_probs = torch.full((2, 3), -1.0)
    given = {"proximal": log_probs, "behavior": log_probs - 0.5, "mask": torch.ones(2, 3, dtype=torch.bool)}
    rule = by_group("token")
    assert rule.needs_whole_step
    with pytest.raises(InputError, match="needs group, got None"):
        correct(rule, **given)
    with pytest.raises(InputError, match="group needs one id per row"):
        correct(rule, **given, group=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match="needs group, got None"):
        trimtab.policy_loss("clip", current=log_probs, advantages=torch.ones(2), correction=rule, **given)
    current = log_probs.clone().requires_grad_()
    found = trimtab.policy_loss(
        "reinforce", current=current, advantages=torch.ones(2), correction=rule, group=torch.tensor([0, 1]), **given
    )
    assert float(found.metrics["weight/mean"]) == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="needs normalize none or batch, got group"):
        Hook("here", frozenset({"correction"}), whole_step=True).check_parts(rule)
