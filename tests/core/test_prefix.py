"""Weights of what came before a token: worked by hand, packed as padded, and refused where a rank has a part only."""

from __future__ import annotations

import math

import pytest
import torch

import trimtab
from trimtab.core.layout import Packed, Padded, least_before, prefix_sums
from trimtab.errors import ConfigError

VALUES = torch.tensor([[0.1, -0.3, 0.2, 0.5], [0.4, 9.0, -0.1, -0.2]])
COUNTED = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 1.0]])


def test_sums_and_minima_up_to_each_token_worked_by_hand() -> None:
    held = VALUES * COUNTED
    sums = prefix_sums(Padded(), held)
    torch.testing.assert_close(
        sums, torch.tensor([[0.1, -0.2, 0.0, 0.5], [0.4, 0.4, 0.3, 0.1]], dtype=torch.float64), rtol=0, atol=1e-6
    )
    least = least_before(Padded(), VALUES, COUNTED)
    torch.testing.assert_close(least, torch.tensor([[0.0, 0.1, -0.3, -0.3], [0.0, 0.4, 0.4, -0.1]]))


@pytest.mark.parametrize("lengths", [(4, 4), (1, 7), (3, 0, 5), (8,), (0, 8), (1, 1, 1, 5)])
def test_sequences_end_to_end_do_not_see_each_other(lengths: tuple[int, ...]) -> None:
    flat, counted = VALUES.flatten(), COUNTED.flatten()
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    layout = Packed(cu_seqlens=bounds, tokens=8)
    sums, least = prefix_sums(layout, flat * counted), least_before(layout, flat, counted)
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        alone = slice(first, last)
        row, there = flat[alone].unsqueeze(0), counted[alone].unsqueeze(0)
        torch.testing.assert_close(sums[alone], prefix_sums(Padded(), row * there)[0], rtol=0, atol=1e-6)
        torch.testing.assert_close(least[alone], least_before(Padded(), row, there)[0])


def test_a_token_weighs_what_came_before_it_and_nothing_after() -> None:
    # ratios 2, 1/2, 3: products 2, 1, 3; its own times the least before: 2, ½·2 = 1, 3·½ = 1.5
    behavior = torch.zeros(1, 3)
    proximal = torch.tensor([[2.0, 0.5, 3.0]]).log()
    mask = torch.ones(1, 3, dtype=torch.bool)
    for level, expected in (("prefix", [2.0, 1.0, 3.0]), ("least_prefix", [2.0, 1.0, 1.5])):
        rule = trimtab.Correction(weight={"level": level})
        found = trimtab.correct(rule, proximal=proximal, behavior=behavior, mask=mask)
        assert found.weight[0].tolist() == pytest.approx(expected)
        later = proximal.clone()
        later[0, 2] = 5.0
        again = trimtab.correct(rule, proximal=later, behavior=behavior, mask=mask)
        assert again.weight[0, :2].tolist() == found.weight[0, :2].tolist()


def test_a_long_prefix_leaves_no_number_type() -> None:
    far = torch.full((1, 400), 1.0)
    rule = trimtab.Correction(weight={"level": "prefix"})
    found = trimtab.correct(rule, proximal=far, behavior=torch.zeros(1, 400), mask=torch.ones(1, 400, dtype=torch.bool))
    assert bool(found.weight.isfinite().all())
    assert math.isfinite(float(found.metrics["weight/mean"]))


def test_a_limit_after_gathering_needs_something_gathered() -> None:
    with pytest.raises(ConfigError, match=r"least_prefix level needs limit\.at token"):
        trimtab.Weight(level="least_prefix", limit={"bound": 2.0, "at": "gathered"})
