"""Normalisation: each field worked by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.advantage.estimate import advantages
from trimtab.advantage.normalise import normalised
from trimtab.config.advantages import Distillation, Estimator, Gae, Gdpo, Normalise, ReMax

VALUES = torch.tensor([0.0, 2.0, 4.0, 10.0], dtype=torch.float64)
GROUP = torch.tensor([1, 1, 8, 8])


# 0 2 4 10: mean 4, squares 16 + 4 + 0 + 36 = 56; group means 1 and 7, squares 2 and 18
@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"std": None}, [-4.0, -2.0, 0.0, 6.0]),
        ({"mean": "group", "std": None}, [-1.0, 1.0, -3.0, 3.0]),
        # the others: 16/3, 14/3, 4, 2
        ({"std": None, "leave_one_out": True}, [-16 / 3, -8 / 3, 0.0, 8.0]),
        ({"mean": "group", "std": None, "leave_one_out": True}, [-2.0, 2.0, -6.0, 6.0]),
        # biased variance 56/4 = 14
        ({"unbiased": False}, [-4 / 14**0.5, -2 / 14**0.5, 0.0, 6 / 14**0.5]),
        ({}, [-4 / (56 / 3) ** 0.5, -2 / (56 / 3) ** 0.5, 0.0, 6 / (56 / 3) ** 0.5]),
        # group deviations, biased: 1 and 3
        ({"mean": "group", "std": "group", "unbiased": False}, [-1.0, 1.0, -1.0, 1.0]),
        ({"mean": "batch", "std": "group", "unbiased": False}, [-4.0, -2.0, 0.0, 2.0]),
        ({"mean": None, "std": "group", "unbiased": False}, [0.0, 2.0, 4 / 3, 10 / 3]),
        # about what was subtracted: squares of −4 −2 are 20, of 0 6 are 36; two votes each
        (
            {"mean": "batch", "std": "group", "unbiased": False, "about": "subtracted"},
            [-4 / 10**0.5, -2 / 10**0.5, 0.0, 6 / 18**0.5],
        ),
        # about 0: squares 4 and 116
        ({"mean": None, "std": "group", "unbiased": True, "about": "subtracted"}, [0.0, 1.0, 4 / 116**0.5, 10 / 116**0.5]),
        # eps: 3 on σ; 21 on σ² (1 + 24 = 25 does not fit all, so groups): variances 1 and 9
        ({"mean": "group", "std": "group", "unbiased": False, "eps": 3.0, "eps_at": "std"}, [-0.25, 0.25, -0.5, 0.5]),
        ({"mean": "group", "std": "group", "unbiased": False, "eps": 16.0, "eps_at": "variance"}, [-1 / 17**0.5, 1 / 17**0.5, -0.6, 0.6]),
        ({"mean": "group", "std": "group", "unbiased": False, "eps": 4.0, "eps_at": "floor"}, [-0.5, 0.5, -1.0, 1.0]),
    ],
)  # fmt: skip
def test_each_field(settings: dict[str, Any], wanted: list[float]) -> None:
    norm = Normalise(**({"eps": 0.0} | settings))
    torch.testing.assert_close(normalised(norm, VALUES, group=GROUP), torch.tensor(wanted, dtype=torch.float64))


def test_what_is_not_said_is_an_unbiased_variance_with_1e_8_added() -> None:
    # 0 and √2·1e-4: deviations ∓1e-4/√2, variance 1e-8, divisor √(2e-8)
    found = normalised(Normalise(), torch.tensor([0.0, math.sqrt(2) * 1e-4], dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([-0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize(("singleton", "wanted"), [("zero", 0.0), ("raw", 5.0)])
def test_a_group_of_one(singleton: Any, wanted: float) -> None:
    for more in ({}, {"leave_one_out": True}, {"std": "group", "eps_at": "std", "eps": 0.0}):
        norm = Normalise(**({"mean": "group", "std": None, "singleton": singleton} | more))
        found = normalised(norm, torch.tensor([5.0, 1.0, 3.0]), group=torch.tensor([0, 1, 1]))
        assert found[0] == wanted


def test_a_group_that_agrees_is_centred_and_not_divided() -> None:
    # batch mean 2: the group of 3s is 1 above it, and has no deviation to divide by
    norm = Normalise(mean="batch", std="group", eps=1e-8)
    found = normalised(norm, torch.tensor([3.0, 3.0, 0.0, 2.0]), group=torch.tensor([0, 0, 1, 1]))
    assert found[:2].tolist() == [1.0, 1.0]


def test_whoever_is_not_kept_is_normalised_by_the_others() -> None:
    # votes 0 and 4: mean 2, variance 8
    norm = Normalise(eps=0.0)
    found = normalised(norm, torch.tensor([0.0, 4.0, 18.0]), kept=torch.tensor([True, True, False]))
    torch.testing.assert_close(found, torch.tensor([-2.0, 2.0, 16.0]) / 8**0.5)


def test_to_one_without_a_vote_all_votes_are_the_others() -> None:
    # votes 0 and 4: each has the other; the third has both, mean 2
    norm = Normalise(std=None, leave_one_out=True)
    found = normalised(norm, torch.tensor([0.0, 4.0, 18.0]), kept=torch.tensor([True, True, False]))
    assert found.tolist() == [-4.0, 4.0, 16.0]


def test_equal_values_are_exactly_zero_though_their_mean_rounds() -> None:
    values = torch.full((6,), 0.1, dtype=torch.float64)
    assert values.cumsum(0)[-1] / 6 != 0.1
    for norm in (Normalise(eps=0.0), Normalise(std=None, leave_one_out=True)):
        assert normalised(norm, values).tolist() == [0.0] * 6


def test_tokens_of_a_group_vote_together() -> None:
    # group 0 holds 1, 3 and 5: mean 3; the masked NaN is 0
    values = torch.tensor([[1.0, 3.0], [5.0, float("nan")], [7.0, 7.0]])
    mask = torch.tensor([[1, 1], [1, 0], [1, 1]])
    norm = Normalise(mean="group", std=None)
    found = normalised(norm, values, mask=mask, group=torch.tensor([0, 0, 1]))
    assert found.tolist() == [[-2.0, 0.0], [2.0, 0.0], [0.0, 0.0]]
    packed = normalised(norm, values[mask.bool()], group=torch.tensor([0, 0, 1]), cu_seqlens=torch.tensor([0, 2, 3, 5]))
    assert packed.tolist() == [-2.0, 0.0, 2.0, 0.0, 0.0]


def test_float32_keeps_the_digits_of_a_small_spread_on_a_large_mean() -> None:
    values = torch.tensor([4096.0, 4096.0 + 2**-11, 4096.0 + 2**-10])  # exact in float32
    found = normalised(Normalise(eps=0.0), values)
    torch.testing.assert_close(found, torch.tensor([-1.0, 0.0, 1.0]))


TENTHS = [[0.3, 0.7], [0.7, 0.6], [0.9, 0.2]]
"""In float32 three numbers less 0.1 of themselves: differences that are equal but for rounding."""


def less(columns: int, by: float = 0.1) -> Tensor:
    return (torch.tensor(TENTHS, dtype=torch.float64)[:, :columns] - by).float()


EQUAL_BUT_FOR_ROUNDING: dict[str, tuple[Estimator, dict[str, Tensor]]] = {
    "remax": (ReMax(), {"rewards": torch.tensor(TENTHS)[:, 0], "baselines": less(1)[:, 0]}),
    "gae": (Gae(lam=1.0), {"rewards": torch.tensor(TENTHS)[:, 0], "values": less(1).expand(3, 2)}),
    "distillation": (Distillation(), {"teacher": -less(2), "proximal": -torch.tensor(TENTHS)}),
    "gdpo": (
        Gdpo(weights=(3.0, 1.0), std=False),
        {"rewards": torch.tensor([[0.1, -0.3], [0.3, -0.9], [0.7, -2.1]])},
    ),
}


@pytest.mark.parametrize("eps_at", ["std", "variance", "floor"])
@pytest.mark.parametrize("mean", ["batch", "group", None])
@pytest.mark.parametrize("name", EQUAL_BUT_FOR_ROUNDING)
def test_what_differs_by_rounding_only_is_not_divided_by_it(name: str, mean: Any, eps_at: Any) -> None:
    estimator, given = EQUAL_BUT_FOR_ROUNDING[name]
    unit = "sequence" if name == "gdpo" else "token"
    for std in ("batch", "group"):
        norm = Normalise(mean=mean, std=std, eps=1e-12, eps_at=eps_at, unit=unit)
        beside = {"mask": torch.ones(3, 2), "group": torch.zeros(3, dtype=torch.int64)}
        found = advantages(estimator.but(normalise=norm), **given, **beside).advantages
        # not divided: 0.1 where nothing is subtracted, and nothing of Gdpo's, whose parts cancel
        wanted = torch.full((3, 2), 0.0 if mean is not None or name == "gdpo" else 0.1)
        torch.testing.assert_close(found, wanted, rtol=1e-6, atol=0.0 if mean is not None else 1e-6)


def test_what_differs_by_more_than_rounding_is_divided_by_it() -> None:
    # the same baselines, one of them off by 1e-5: advantages 0.1, 0.1 and 0.1 + 1e-5 have deviation 1e-5/√3
    baselines = less(1)[:, 0].clone()
    baselines[2] -= 1e-5
    norm = Normalise(unit="token", eps=0.0)
    found = advantages(
        ReMax(normalise=norm),
        rewards=torch.tensor(TENTHS)[:, 0],
        baselines=baselines,
        mask=torch.ones(3, 1),
    ).advantages.flatten()
    torch.testing.assert_close(found, torch.tensor([-1.0, -1.0, 2.0]) / math.sqrt(3), rtol=0.02, atol=0.0)
