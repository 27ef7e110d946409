"""Tunix's losses and advantages against the same written out once more, in float64 and from its source."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from tests.dialects.test_objectives import REWARDS, advantages, batch, same
from trimtab.dialects import read

AGENTIC: dict[str, Any] = {"training_mode": "agentic_grpo"}
WIDTH = 6


def _reduced(loss: Tensor, mask: Tensor, mode: str) -> Tensor:
    """`aggregate_loss`, with the padded width as its norm."""
    rows, filled = (loss * mask).sum(-1), (mask.sum(-1) > 0).sum()
    return {
        "token-mean": rows.sum() / mask.sum(),
        "sequence-mean-token-mean": (rows / mask.sum(-1).clamp(min=1)).sum() / filled,
        "sequence-mean-token-scale": rows.sum() / WIDTH / filled,
        "seq-mean-token-sum": rows.sum() / filled,
        "sequence-mean-token-sum-norm": rows.sum() / filled,
    }[mode]


def _clipped(log_ratio: Tensor, worth: Tensor, low: float, high: float, most: float | None) -> Tensor:
    rho = log_ratio.exp()
    loss = torch.maximum(-worth * rho, -worth * rho.clamp(1 - low, 1 + high))
    return loss if most is None else torch.where(worth < 0, torch.minimum(-most * worth, loss), loss)


def _kl(now: Tensor, reference: Tensor, mode: str, most: float | None) -> Tensor:
    d = now - reference
    value = {"kl": d, "mse_kl": d**2 / 2, "low_var_kl": (-d).exp() + d - 1}[mode]
    return value if most is None else value.clamp(-most, most)


@pytest.mark.parametrize(
    "mode",
    [
        "token-mean",
        "sequence-mean-token-mean",
        "sequence-mean-token-scale",
        "seq-mean-token-sum",
        "sequence-mean-token-sum-norm",
    ],
)
@pytest.mark.parametrize("kl", ["kl", "mse_kl", "low_var_kl"])
def test_grpo_weighs_after_the_clip_and_adds_the_kl_under_the_same_reduction(mode: str, kl: str) -> None:
    x = batch(7)
    x["mask"][3] = False  # a row without tokens is not counted
    config: dict[str, Any] = {"epsilon": 0.1, "epsilon_high": 0.2, "epsilon_c": 1.2, "sampler_is": "token"}
    config |= {
        "sampler_is_threshold": 1.1,
        "beta": 0.3,
        "kl_loss_mode": kl,
        "kl_clamp_value": 0.4,
        "loss_agg_mode": mode,
    }
    weight = (x["proximal"] - x["behavior"]).clamp(-20, 20).exp().clamp(max=1.1)

    def formula(now: Tensor) -> Tensor:
        log_ratio = (now - x["proximal"]).clamp(-20, 20)
        loss = weight * _clipped(log_ratio, x["advantages"], 0.1, 0.2, 1.2)
        return _reduced(loss, x["mask"], mode) + 0.3 * _reduced(_kl(now, x["reference"], kl, 0.4), x["mask"], mode)

    same(read("tunix", {**AGENTIC, "agentic_grpo_config": config}, width=WIDTH), formula, x)


@pytest.mark.parametrize(("says", "anchor"), [(True, "behavior"), (False, "proximal")])
def test_the_clipped_ratio_divides_by_the_sampler_unless_told_not_to(says: bool, anchor: str) -> None:
    x = batch(3)
    config = {"epsilon": 0.2, "beta": 0.0, "use_rollout_logps": says}
    reading = read("tunix", {**AGENTIC, "agentic_grpo_config": config})

    def formula(now: Tensor) -> Tensor:
        loss = _clipped(now - x[anchor], x["advantages"], 0.2, 0.2, None)
        return _reduced(loss, x["mask"], "sequence-mean-token-mean")

    same(reading, formula, x)


def test_gspo_token_clips_the_mean_of_the_sequence_with_each_tokens_gradient() -> None:
    x = batch(5)
    config = {"loss_algo": "gspo-token", "epsilon": 0.01, "epsilon_high": 0.02, "beta": 0.0, "num_iterations": 2}

    def formula(now: Tensor) -> Tensor:
        log = now - x["proximal"]
        mean = (log * x["mask"]).sum(-1, keepdim=True) / x["mask"].sum(-1, keepdim=True)
        held = (now - now.detach() + mean.detach()).clamp(max=10)
        return _reduced(_clipped(held, x["advantages"], 0.01, 0.02, None), x["mask"], "sequence-mean-token-mean")

    same(read("tunix", {"grpo_config": config}), formula, x)


def test_ppo_clips_by_two_widths_and_averages_over_the_tokens() -> None:
    x = batch(2)
    config = {"epsilon": 0.2, "epsilon_low": 0.1, "epsilon_c": 1.3, "beta": 0.1}

    def formula(now: Tensor) -> Tensor:
        loss = _clipped(now - x["proximal"], x["advantages"], 0.1, 0.2, 1.3)
        return (loss * x["mask"]).sum() / x["mask"].sum()

    same(read("tunix", {"ppo_config": config}), formula, x)


@pytest.mark.parametrize("name", ["grpo", "drgrpo", "rloo"])
def test_rewards_become_advantages_within_their_group(name: str) -> None:
    group = REWARDS.view(2, 4)
    centred = group - group.mean(1, keepdim=True)
    wanted = {
        "grpo": centred / (group.std(1, keepdim=True) + 1e-6),
        "drgrpo": centred,
        "rloo": group - (group.sum(1, keepdim=True) - group) / 3,
    }[name]
    reading = read("tunix", {"grpo_config": {"advantage_estimator": name, "num_generations": 4}})
    found = advantages(reading, REWARDS, group=torch.arange(8) // 4)
    torch.testing.assert_close(found, wanted.reshape(-1, 1))


def test_ppos_advantages_run_over_the_trained_tokens_and_are_whitened() -> None:
    x = batch(11)
    values = torch.randn(4, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * x["mask"]
    rewards, beta, gamma, lam = REWARDS[:4], 0.1, 0.9, 0.8
    kl = _kl(x["proximal"], x["reference"], "low_var_kl", None) * x["mask"]
    token = -beta * kl
    for row in range(4):
        token[row, int(x["mask"][row].nonzero()[-1])] += rewards[row]
    found, carried, after = torch.zeros_like(token), torch.zeros(4).double(), torch.zeros(4).double()
    for t in reversed(range(6)):
        on = x["mask"][:, t].double()
        here = token[:, t] + gamma * after - values[:, t] + gamma * lam * carried
        carried, after = here * on + (1 - on) * carried, values[:, t] * on + (1 - on) * after
        found[:, t] = carried
    kept = found[x["mask"]]
    wanted = (found - kept.mean()) / (kept.var() + 1e-8).sqrt() * x["mask"]

    config = {"gamma": gamma, "gae_lambda": lam, "beta": beta}
    reading = read("tunix", {"ppo_config": config})
    assert reading.advantage is not None
    assert reading.reward_kl is not None
    assert reading.reward_kl.estimator == "k3"
    result = trimtab.advantages(
        reading.advantage,
        rewards=rewards,
        mask=x["mask"],
        values=values,
        token_rewards=-reading.reward_kl.coefficient * kl,
    )
    torch.testing.assert_close(result.advantages, wanted)
