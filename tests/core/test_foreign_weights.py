"""Weights made elsewhere act as those of `correct`, and what they say of themselves is the same."""

from __future__ import annotations

import pytest
import torch

import trimtab
from trimtab.errors import InputError

MAKE = torch.Generator().manual_seed(3)
BEHAVIOR = -torch.rand(4, 6, generator=MAKE) * 3
PROXIMAL = BEHAVIOR + 0.4 * torch.randn(4, 6, generator=MAKE)
CURRENT = PROXIMAL + 0.2 * torch.randn(4, 6, generator=MAKE)
MASK = torch.arange(6) < torch.tensor([[6], [4], [5], [1]])
ADVANTAGES = torch.randn(4, generator=MAKE)


def test_the_weights_of_a_correction_handed_over_as_numbers_give_its_loss_its_gradient_and_its_metrics():
    rule = trimtab.preset("geo-rs+token-tis", lower=0.9, upper=1.2)
    out = trimtab.correct(rule, behavior=BEHAVIOR, proximal=PROXIMAL, mask=MASK)
    assert 0 < out.kept.sum() < MASK.sum()
    made = trimtab.Corrected.of_weights(out.weight, mask=MASK, kept=out.kept)
    found = []
    for correction in (out, made):
        leaf = CURRENT.clone().requires_grad_()
        loss = trimtab.policy_loss(
            "clip", current=leaf, proximal=PROXIMAL, mask=MASK, advantages=ADVANTAGES, correction=correction
        )
        loss.loss.backward()
        found.append((loss.loss.detach(), leaf.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    for name in made.metrics:
        torch.testing.assert_close(made.metrics[name], out.metrics[name])


def test_a_weight_that_is_no_number_takes_its_token_out_and_is_counted():
    weight = torch.tensor([[1.0, 2.0, float("nan"), 4.0]])
    mask = torch.tensor([[True, True, True, False]])
    made = trimtab.Corrected.of_weights(weight, mask=mask)
    assert made.weight.tolist() == [[1.0, 2.0, 0.0, 0.0]]
    assert made.trained.tolist() == made.kept.tolist() == [[True, True, False, False]]
    assert made.metrics["missing_fraction"] == torch.tensor(1 / 3)
    assert made.metrics["weight/mean"] == 1.5


def test_weights_in_float64_keep_their_digits():
    weight = torch.tensor(
        [[0.1, 1e300, float("inf")]], dtype=torch.float64
    )  # 1e300 is a number, though none of float32
    made = trimtab.Corrected.of_weights(weight, mask=torch.ones(1, 3, dtype=torch.bool))
    assert made.weight.dtype == made.log_r.dtype == torch.float64
    assert made.weight.tolist() == [[0.1, 1e300, 0.0]]
    assert made.kept.tolist() == [[True, True, False]]
    for kind in (torch.float32, torch.bfloat16):
        made = trimtab.Corrected.of_weights(weight[:, :1].to(kind), mask=torch.ones(1, 1, dtype=torch.bool))
        assert made.weight.dtype == torch.float32


def test_a_rule_beside_them_says_what_is_counted():
    weight, mask = torch.tensor([[1.0, 1.0]]), torch.ones(1, 2, dtype=torch.bool)
    kept, rule = torch.tensor([[True, False]]), trimtab.preset("geo-rs").but(denominator="kept")
    losses = [
        trimtab.policy_loss(
            "reinforce",
            current=torch.tensor([[-1.0, -1.0]], requires_grad=True),
            mask=mask,
            advantages=torch.ones(1),
            correction=trimtab.Corrected.of_weights(weight, mask=mask, kept=kept, rule=each),
        ).loss.item()
        for each in (None, rule)
    ]
    assert losses == [0.5, 1.0]  # one token of loss 1, over two tokens and over the kept one


def test_a_weight_per_row_is_refused():
    with pytest.raises(InputError, match=r"weight needs the shape of mask \(4, 6\), got \(4, 1\)"):
        trimtab.Corrected.of_weights(torch.ones(4, 1), mask=MASK)
