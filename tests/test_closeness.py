"""Comparisons that see what they are for."""

from __future__ import annotations

import pytest
import torch

from tests.closeness import same_differences, same_products


def test_small_weights_that_differ_are_not_the_same() -> None:
    same_products(torch.tensor([2.2e-6, 1.0]), torch.tensor([2.2e-6, 1.0]))
    with pytest.raises(AssertionError):
        same_products(torch.tensor([2.2e-6, 1.0]), torch.tensor([2.8e-6, 1.0]))


def test_what_is_left_of_a_difference_is_compared_at_the_scale_of_its_terms() -> None:
    same_differences(torch.tensor([5e-7, 1.0]), torch.tensor([0.0, 1.0]))
    with pytest.raises(AssertionError):
        same_differences(torch.tensor([5e-7, 1e-3]), torch.tensor([0.0, 1e-3]))
