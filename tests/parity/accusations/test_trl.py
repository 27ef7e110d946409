"""What trimtab says of TRL 1.16.0 beside what its GRPOTrainer and its configs do."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import peers
import pytest
import torch
from torch import Tensor

import trimtab
from trimtab.dialects import DIALECTS, read
from trimtab.dialects.frameworks.trl import CONFIGS, P

Settings = dict[str, Any]
SAMPLED: Settings = {"use_vllm": True}
close = torch.testing.assert_close


def row(*values: float) -> Tensor:
    return torch.tensor([list(values)], dtype=torch.float64)


def is_said(settings: Settings, words: str) -> bool:
    return any(words in each.text and each.source for each in read("trl", settings).findings)


def weight(log_ratio: float, width: int, **settings: Any) -> float:
    """The weight of the first of `width` tokens of one log-ratio, two rows."""
    proximal = torch.full((2, width), -1.0)
    given = {f"{P}_{name}": value for name, value in settings.items()}
    found, *_ = peers.trl_correction(proximal, proximal - log_ratio, torch.ones(2, width, dtype=torch.bool), **given)
    assert found is not None
    return float(found[0, 0])


def loss(log_ratios: Tensor, advantages: list[float], lengths: list[int] | None = None, **settings: Any) -> Tensor:
    """TRL's loss where every current log-prob is −1 and the ratio to the one before the step as given."""
    width = log_ratios.shape[1]
    current = torch.full_like(log_ratios, -1.0)
    mask = torch.arange(width)[None] < torch.tensor(lengths or [width] * len(log_ratios))[:, None]
    given = {"max_completion_length": width} | settings
    found, _ = peers.trl_loss(
        current, current - log_ratios, torch.tensor(advantages, dtype=torch.float64), mask, **given
    )
    return found


def test_a_sequence_mode_bounds_the_product_and_a_token_mode_does_not() -> None:
    small = math.log(1.02)
    assert weight(small, 100, mode="sequence_truncate", clip_max=100.0) == pytest.approx(1.02**100, rel=1e-4)  # 7.24
    assert weight(small, 100, mode="sequence_mask", clip_max=3.0) == 0
    assert weight(small, 100, mode="token_truncate", clip_max=3.0) == pytest.approx(1.02, rel=1e-5)
    assert is_said(SAMPLED | {f"{P}_mode": "sequence_mask"}, "a hundred tokens at ratio 1.02 make 7.2")
    assert not is_said(SAMPLED | {f"{P}_mode": "token_truncate"}, "a hundred tokens")


def test_without_clip_max_a_product_overflows_and_a_tokens_ratio_does_not() -> None:
    assert weight(1.0, 100, mode="sequence_mask", clip_max=None) == math.inf
    assert weight(1.0, 100, mode="sequence_mask", clip_max=3.0) == 0
    assert weight(1.0, 100, mode="token_mask", clip_max=None) == pytest.approx(math.e, rel=1e-5)
    assert is_said(SAMPLED | {f"{P}_mode": "sequence_mask", f"{P}_clip_max": None}, "can overflow")
    assert not is_said(SAMPLED | {f"{P}_mode": "token_mask", f"{P}_clip_max": None}, "can overflow")


@pytest.mark.parametrize(("epsilon_high", "factor"), [(5.0, 4.0), (2.0, 2.0), (0.28, 0.28)])
def test_epsilon_high_of_cispo_bounds_the_ratio_itself(epsilon_high: float, factor: float) -> None:
    found = loss(row(math.log(4.0)), [1.0], loss_type="cispo", epsilon_high=epsilon_high)  # −factor·A·log p, log p = −1
    close(found, torch.tensor(factor, dtype=torch.float64))
    if epsilon_high > 1:  # a bound without 1 is refused
        assert is_said({"loss_type": "cispo", "epsilon_high": epsilon_high}, "bounds the ratio itself")


@pytest.mark.parametrize("settings", [{"loss_type": "grpo"}, {"loss_type": "dapo", "epsilon_high": 0.4}])
def test_a_delta_below_the_clip_caps_where_the_advantage_is_positive_and_one_above_is_a_dual_clip(
    settings: Settings,
) -> None:
    def of(ratio: float, advantage: float, delta: float) -> float:
        return float(loss(row(math.log(ratio)), [advantage], delta=delta, **settings))

    assert of(1.15, 1.0, delta=1.05) == pytest.approx(-1.05)
    assert of(1.15, 1.0, delta=4.0) == pytest.approx(-1.15)
    high = settings.get("epsilon_high", 0.2)
    for ratio in (0.5, 1.1, 3.0, 9.0):
        for advantage in (1.0, -1.0):
            policy = row(math.log(ratio)) - 1.0
            ours = trimtab.policy_loss(
                trimtab.Clip(high=high, dual=4.0),
                current=policy,
                proximal=torch.full_like(policy, -1.0),
                advantages=row(advantage),
                mask=torch.ones(1, 1, dtype=torch.bool),
            ).loss
            assert of(ratio, advantage, delta=4.0) == pytest.approx(float(ours)), (ratio, advantage)
    assert is_said(settings | {"delta": 1.05}, "positive too")
    assert not is_said(settings | {"delta": 4.0}, "positive too")


@pytest.mark.parametrize(
    ("loss_type", "depends"),
    [("bnpo", True), ("grpo", False), ("sapo", False), ("dr_grpo", False), ("luspo", False)],
)
def test_how_the_batch_is_split_matters_to_bnpo_alone(loss_type: str, depends: bool) -> None:
    make = torch.Generator().manual_seed(0)
    ratios = torch.randn(4, 6, generator=make, dtype=torch.float64) * 0.3
    advantages, lengths = [1.0, -0.5, 2.0, -1.5], [1, 6, 2, 3]
    whole = loss(ratios, advantages, lengths, loss_type=loss_type)
    halves = [loss(ratios[s], advantages[s], lengths[s], loss_type=loss_type) for s in (slice(0, 2), slice(2, 4))]
    assert (abs(float(sum(halves) / 2 - whole)) > 1e-3) == depends
    assert is_said({"loss_type": loss_type}, "how the batch is split") == depends


@pytest.mark.parametrize("loss_type", ["grpo", "bnpo", "dr_grpo", "dapo"])
def test_the_entropy_bonus_is_a_token_mean_under_every_loss_type(loss_type: str) -> None:
    make = torch.Generator().manual_seed(1)
    current = -torch.rand(3, 5, generator=make, dtype=torch.float64) - 0.2
    entropies = torch.rand(3, 5, generator=make, dtype=torch.float64)
    mask = torch.arange(5)[None] < torch.tensor([2, 5, 1])[:, None]
    advantages = torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64)
    settings = {"loss_type": loss_type, "entropy_coef": 0.3, "max_completion_length": 5}
    theirs, _ = peers.trl_loss(
        current, current - 0.05, advantages, mask, entropies=entropies, num_items_in_batch=int(mask.sum()), **settings
    )
    reading = read("trl", settings)
    assert reading.loss is not None
    ours = trimtab.policy_loss(
        reading.loss,
        current=current,
        proximal=current - 0.05,
        advantages=advantages,
        mask=mask,
        reduction=reading.reduction,
        entropy=entropies,
        entropy_bonus=reading.entropy,
    ).loss
    close(ours, theirs)
    assert abs(float(theirs - peers.trl_loss(current, current - 0.05, advantages, mask, **settings)[0])) > 1e-2


@pytest.mark.parametrize("name", CONFIGS)
def test_the_configs_beside_grpos_have_the_keys_that_are_read_of_them(name: str) -> None:
    from trl import RLOOConfig
    from trl.experimental.async_grpo import AsyncGRPOConfig

    config = {"RLOOConfig": RLOOConfig, "AsyncGRPOConfig": AsyncGRPOConfig}[name]
    theirs = {each.name for each in dataclasses.fields(config)}
    assert {key.label for key in DIALECTS["trl"].keys} & theirs == CONFIGS[name]
    with pytest.raises(TypeError, match="unexpected keyword"):
        config(output_dir="o", **{f"{P}_mode": "token_truncate"})
