"""What trimtab says of ms-swift 4.6.0 beside what its GRPOTrainer does."""

from __future__ import annotations

import math
from typing import Any

import peers
import pytest
import torch
from torch import Tensor

from trimtab.dialects import read

P = "rollout_importance_sampling"
Settings = dict[str, Any]
CURRENT = torch.full((2, 4), -1.0, dtype=torch.float64)
MASK = torch.ones(2, 4, dtype=torch.bool)


def is_said(settings: Settings, words: str) -> bool:
    return any(words in each.text and each.source for each in read("ms-swift", settings).findings)


def loss(advantages: list[float], **given: Any) -> float:
    per_token = torch.tensor(advantages, dtype=torch.float64)[:, None].expand(2, 4)
    settings = {"proximal": CURRENT, "mask": MASK, "max_completion_length": 4} | given
    proximal, mask = settings.pop("proximal"), settings.pop("mask")
    return float(peers.swift_loss(CURRENT, proximal, per_token, mask, **settings)[0])


def weights(log_ratios: list[float], mode: str, threshold: float = 2.0) -> list[float]:
    proximal = torch.full((1, len(log_ratios)), -9.0)
    behavior = proximal - torch.tensor([log_ratios])
    settings = {f"{P}_mode": mode, f"{P}_threshold": threshold}
    found, *_ = peers.swift_correction(proximal, behavior, torch.ones_like(proximal, dtype=torch.bool), **settings)
    assert found is not None
    return [round(value, 3) for value in found[0].tolist()]


def test_the_weight_multiplies_the_kl_term_too() -> None:
    kl = {"beta": 0.5, "reference": CURRENT + 0.7, "behavior": CURRENT + 0.5}  # the ratio is e^−½ everywhere
    mode = {f"{P}_mode": "token_truncate"}
    assert loss([0.0, 0.0], **kl, **mode) == pytest.approx(math.exp(-0.5) * loss([0.0, 0.0], **kl))
    assert loss([0.0, 0.0], **kl) > 0.01
    assert is_said({**mode, "beta": 0.5}, "multiplies the KL term too")
    assert not is_said({**mode, "beta": 0.0}, "multiplies the KL term too")


def test_a_sequence_mask_tests_the_geometric_mean_and_survivors_keep_their_own_ratios() -> None:
    ratios = [3.0, -1.0, -1.0, -1.0]  # mean 0, sum 0
    assert weights(ratios, "sequence_mask") == [20.086, 0.368, 0.368, 0.368]
    assert weights([0.5, 0.5, 0.5, 0.5], "sequence_mask") == [1.649] * 4  # the product is 7.39, above 2
    assert weights([0.8] * 4, "sequence_mask") == [0.0] * 4  # 2.2, above 2
    assert weights(ratios, "token_mask") == [0.0, 0.368, 0.368, 0.368]
    assert is_said({f"{P}_mode": "sequence_mask"}, "tests the geometric mean")
    assert not is_said({f"{P}_mode": "token_mask"}, "tests the geometric mean")


def test_a_sequence_truncate_caps_the_geometric_mean() -> None:
    assert weights([0.5] * 4, "sequence_truncate") == [1.649] * 4  # the product is 7.39
    assert weights([0.8] * 4, "sequence_truncate") == [2.0] * 4
    assert weights([0.5, 0.8], "token_truncate") == [1.649, 2.0]
    assert is_said({f"{P}_mode": "sequence_truncate"}, "caps the geometric mean")


@pytest.mark.parametrize(("loss_type", "count"), [("grpo", 2), ("bnpo", 1)])
def test_masked_sequences_leave_the_mask_and_bnpos_count(loss_type: str, count: int) -> None:
    """The second row drifted and has a negative advantage: its KL goes with it, and of bnpo's tokens only the first row's stay."""
    behavior = CURRENT + torch.tensor([[0.0], [0.5]])
    kl = {"beta": 0.5, "reference": CURRENT + 0.7, "loss_type": loss_type}
    of_a_token = loss([0.0, 0.0], **kl)
    cut = loss([0.0, -1e-12], **kl, behavior=behavior, off_policy_sequence_mask_delta=0.1)
    kept = loss([0.0, 1e-12], **kl, behavior=behavior, off_policy_sequence_mask_delta=0.1)
    assert cut == pytest.approx(of_a_token / count)
    assert kept == pytest.approx(of_a_token)
    assert is_said({"off_policy_sequence_mask_delta": 0.1}, "leave the mask")


@pytest.mark.parametrize(("epsilon_high", "factor"), [(5.0, 4.0), (2.0, 2.0)])
def test_epsilon_high_of_cispo_bounds_the_ratio_itself(epsilon_high: float, factor: float) -> None:
    found = loss([1.0, 1.0], proximal=CURRENT - math.log(4.0), loss_type="cispo", epsilon_high=epsilon_high)
    assert found == pytest.approx(factor)  # −factor·A·log p, log p = −1
    assert is_said({"loss_type": "cispo", "epsilon_high": epsilon_high}, "bounds the ratio itself")


@pytest.mark.parametrize(
    ("loss_type", "depends"), [("bnpo", True), ("grpo", False), ("sapo", False), ("dr_grpo", False)]
)
def test_how_the_batch_is_split_matters_to_bnpo_alone(loss_type: str, depends: bool) -> None:
    make = torch.Generator().manual_seed(0)
    proximal = CURRENT - torch.randn(2, 4, generator=make, dtype=torch.float64) * 0.3
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    given = {"loss_type": loss_type, "max_completion_length": 4}

    def of(rows: slice) -> Tensor:
        advantages = torch.tensor([[1.0], [-2.0]], dtype=torch.float64).expand(2, 4)[rows]
        return peers.swift_loss(CURRENT[rows], proximal[rows], advantages, mask[rows], **given)[0]

    apart = float((of(slice(0, 1)) + of(slice(1, 2))) / 2 - of(slice(0, 2)))
    assert (abs(apart) > 1e-3) == depends
    assert is_said({"loss_type": loss_type, "beta": 0.0}, "one micro-batch") == depends


def test_a_delta_below_the_clip_caps_where_the_advantage_is_positive() -> None:
    def of(delta: float) -> float:
        return loss([1.0, 1.0], proximal=CURRENT - math.log(1.15), loss_type="grpo", delta=delta)

    assert of(1.05) == pytest.approx(-1.05)
    assert of(4.0) == pytest.approx(-1.15)
    assert is_said({"loss_type": "grpo", "delta": 1.05}, "positive too")
    assert not is_said({"loss_type": "grpo", "delta": 4.0}, "positive too")
