"""Order statistics are those a sort finds, ties, float64 and far numbers included."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trimtab.core.quantiles import largest, quantiles, within_budget
from trimtab.core.ranks import ALONE

KINDS = st.sampled_from([torch.float32, torch.float64])
TIED = st.sampled_from([-3e38, -0.0, 0.0, 1.5])
LATTICE = st.lists(st.tuples(TIED, st.sampled_from([True, True, False])), max_size=24)
MANY = st.lists(st.tuples(TIED, st.just(True)), min_size=9, max_size=16)


def tensors(drawn: list[tuple[float, bool]], kind: torch.dtype) -> tuple[Tensor, Tensor]:
    value = torch.tensor([value for value, _ in drawn], dtype=kind)
    return value, torch.tensor([float(counts) for _, counts in drawn], dtype=kind)


@given(LATTICE | MANY, st.integers(0, 9), KINDS)
def test_exactly_as_many_as_asked_for_are_the_largest_and_of_equal_ones_the_first(
    drawn: list[tuple[float, bool]], number: int, kind: torch.dtype
) -> None:
    value, counted = tensors(drawn, kind)
    found = largest(value, counted, torch.tensor(float(number)), ALONE)
    there = [place for place, (_, counts) in enumerate(drawn) if counts]
    want = sorted(there, key=lambda place: (-drawn[place][0], place))[:number]
    assert found.nonzero().flatten().tolist() == sorted(want)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=64), min_size=1, max_size=12))
def test_the_largest_float64_is_told_from_its_neighbours(numbers: list[float]) -> None:
    near = [each for number in numbers for each in (number, math.nextafter(number, -math.inf))]
    value = torch.tensor([each for each in near if math.isfinite(each)], dtype=torch.float64)
    found = largest(value, torch.ones_like(value), torch.tensor(1.0), ALONE)
    assert found.nonzero().item() == value.tolist().index(max(value.tolist()))


def test_the_first_of_equal_values_are_taken_and_minus_zero_is_zero() -> None:
    value = torch.tensor([3.0, 3.0, 1.0, -0.0, 0.0])
    assert largest(value, torch.ones(5), torch.tensor(1.0), ALONE).tolist() == [1, 0, 0, 0, 0]
    assert largest(value, torch.ones(5), torch.tensor(4.0), ALONE).tolist() == [1, 1, 1, 1, 0]


@given(st.lists(st.sampled_from([1.0, 1.0 + 1e-10, 0.5, 2.0, 1e39]), max_size=5), st.booleans())
def test_a_budget_falls_between_float64_values_and_never_between_equal_ones(values: list[float], strict: bool) -> None:
    value = torch.tensor(values, dtype=torch.float64)
    found = within_budget(value, torch.ones_like(value), 1.0, ALONE, strict=strict).tolist()
    want = -math.inf if not (strict and values) else min(values)
    for top in sorted(set(values)):
        rest = [each for each in values if each <= top]
        if sum(rest) < len(rest) or (sum(rest) == len(rest) and not strict):
            want = top
    assert found == [float(each <= want) for each in values]


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_a_quantile_is_the_value_a_sort_finds(kind: torch.dtype) -> None:
    value = torch.randn(999, generator=torch.Generator().manual_seed(2), dtype=kind)
    found = quantiles(value, torch.ones_like(value), [0.01, 0.5, 0.99], ALONE)
    want = value.sort().values[[9, 499, 989]]  # ⌈0.01 · 999⌉ = 10 values at or below the tenth
    assert found.tolist() == want.float().tolist()
