"""Losses and advantages of open-instruct, ROLL, slime, NeMo-RL and prime-rl that nobody recorded, against their sources in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from tests.dialects.test_objectives import GROUP, REWARDS, TWO, advantages, batch, row_mean, same, twice_clipped
from trimtab.dialects import read
from trimtab.errors import ConfigError


def sequence_ratio(now: Tensor, x: dict[str, Tensor]) -> Tensor:
    """exp of the mean log-ratio over the trained tokens of each row; the gradient flows through the mean."""
    log = (now - x["proximal"]) * x["mask"]
    return (log.sum(-1, keepdim=True) / x["mask"].sum(-1, keepdim=True)).exp().expand_as(now)


def clipped(rho: Tensor, worth: Tensor, low: float, high: float, most: float | None = None) -> Tensor:
    loss = torch.maximum(-worth * rho, -worth * rho.clamp(1 - low, 1 + high))
    return loss if most is None else torch.where(worth < 0, torch.minimum(loss, -worth * most), loss)


def token_mean(value: Tensor, mask: Tensor) -> Tensor:
    return (value * mask).sum() / mask.sum()


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("framework", ["slime", "miles", "nemo-rl", "roll"])
def test_gspo_clips_the_mean_of_each_sequence(framework: str, seed: int) -> None:
    x = batch(seed)
    settings: dict[str, dict[str, Any]] = {
        "slime": {"advantage_estimator": "gspo", "eps_clip": 0.01, "eps_clip_high": 0.02, "eps_clip_c": 1.1},
        "miles": {"advantage_estimator": "gspo", "eps_clip": 0.01, "eps_clip_high": 0.02, "eps_clip_c": 1.1},
        "nemo-rl": {
            "loss_fn": {
                "sequence_level_importance_ratios": True,
                "token_level_loss": False,
                "ratio_clip_min": 0.01,
                "ratio_clip_max": 0.02,
                "ratio_clip_c": 1.1,
            }
        },
        "roll": {
            "importance_sampling": "seq",
            "use_pg_clip_range": True,
            "pg_clip_low": 0.01,
            "pg_clip_high": 0.02,
            "pg_clip": 0.05,
            "dual_clip_loss": True,
            "loss_agg_mode": "seq-mean-token-mean",
        },
    }

    def formula(now: Tensor) -> Tensor:
        return row_mean(clipped(sequence_ratio(now, x), x["advantages"], 0.01, 0.02, 1.1), x["mask"])

    same(read(framework, settings[framework]), formula, x)


def test_rolls_segments_are_the_runs_of_the_mask() -> None:
    x = batch(8)
    mask = x["mask"]
    starts = mask & ~torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    run = starts.cumsum(1) * mask
    assert int(run.max()) > 1

    def formula(now: Tensor) -> Tensor:
        log, rho = now - x["proximal"], torch.ones_like(now)
        for place in range(1, int(run.max()) + 1):
            on = run == place
            mean = (log * on).sum(-1, keepdim=True) / on.sum(-1, keepdim=True).clamp(min=1)
            rho = torch.where(on, mean.exp(), rho)
        return row_mean(clipped(rho, x["advantages"], 0.1, 0.1, 1.2), mask)

    settings = {"ratio_type": "segment", "pg_clip": 0.1, "dual_clip_loss": True, "loss_agg_mode": "seq-mean-token-mean"}
    same(read("roll", settings), formula, x)


@pytest.mark.parametrize(
    ("framework", "settings", "low", "high", "by_token"),
    [
        ("slime", {"advantage_estimator": "cispo", "eps_clip": 0.1, "eps_clip_high": 0.2}, 0.9, 1.2, False),
        ("nemo-rl", {"loss_fn": {"use_cispo": True, "ratio_clip_min": 0.1, "ratio_clip_max": 0.2}}, 0.9, 1.2, True),
        ("prime-rl", {"type": "cispo", "ratio_low": 0.9, "ratio_high": 1.2}, 0.9, 1.2, True),
    ],
)
def test_cispo_bounds_a_ratio_without_gradient(
    framework: str, settings: dict[str, Any], low: float, high: float, by_token: bool
) -> None:
    x = batch(5)
    anchor = x["behavior"] if framework == "prime-rl" else x["proximal"]

    def formula(now: Tensor) -> Tensor:
        value = -(now - anchor).exp().clamp(low, high).detach() * x["advantages"] * now
        return token_mean(value, x["mask"]) if by_token else row_mean(value, x["mask"])

    same(read(framework, settings), formula, x)


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "low_var_kl"])
@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("framework", ["slime", "miles"])
def test_slimes_kl_is_paid_beside_the_clip(framework: str, estimator: str, unbiased: bool) -> None:
    if unbiased and estimator == "low_var_kl":
        return  # refused by name
    x = batch(6)
    settings = {"advantage_estimator": "grpo", "eps_clip": 0.1, "use_kl_loss": True, "kl_loss_coef": 0.3}
    settings |= {"kl_loss_type": estimator, "use_unbiased_kl": unbiased}

    def formula(now: Tensor) -> Tensor:
        d = now - x["reference"]
        kl = {"k1": d, "k2": d**2 / 2}.get(estimator, (-d).exp() - 1 + d)
        kl = kl * (now - x["proximal"]).exp() if unbiased else kl
        kl = kl.clamp(-10, 10) if estimator == "low_var_kl" else kl
        return row_mean(twice_clipped(now, x, 0.1, 0.1, 1e9) + 0.3 * kl, x["mask"])

    same(read(framework, settings), formula, x)


def test_slimes_reinforce_has_no_ratio() -> None:
    x = batch(1)
    reading = read("slime", {"advantage_estimator": "grpo", "pg_loss_type": "reinforce"})
    same(reading, lambda now: row_mean(-x["advantages"] * now, x["mask"]), x)


def test_nemo_rls_kl_is_differentiated_through_the_sample_too() -> None:
    x = batch(2)
    config = {"reference_policy_kl_penalty": 0.2, "ratio_clip_min": 0.1, "ratio_clip_max": 0.1}

    def formula(now: Tensor) -> Tensor:
        d = now - x["reference"]
        kl = (now - now.detach()).exp() * ((-d).exp() - 1 + d)
        return token_mean(twice_clipped(now, x, 0.1, 0.1, 1e9) + 0.2 * kl, x["mask"])

    same(read("nemo-rl", {"loss_fn": config}), formula, x)


@pytest.mark.parametrize("kind", ["k1", "k2"])
def test_nemo_rls_other_estimates_have_a_gradient_that_cannot_be_said(kind: str) -> None:
    config = {"reference_policy_kl_penalty": 0.2, "reference_policy_kl_type": kind, "ratio_clip_min": 0.1}
    with pytest.raises(ConfigError, match="through the probability of the sample"):
        read("nemo-rl", {"loss_fn": config})


def test_nemo_rl_without_a_ratio_is_reinforce() -> None:
    x = batch(2)
    reading = read("nemo-rl", {"loss_fn": {"disable_ppo_ratio": True}})
    same(reading, lambda now: token_mean(-x["advantages"] * now, x["mask"]), x)


@pytest.mark.parametrize("estimator", ["0", "1", "2", "3"])
def test_open_instructs_dapo_clips_and_pays_an_unweighted_kl(estimator: str) -> None:
    x = batch(3)
    config = {"loss_fn": "dapo", "clip_lower": 0.1, "clip_higher": 0.25, "beta": 0.1, "kl_estimator": estimator}

    def formula(now: Tensor) -> Tensor:
        rho, d = (now - x["proximal"]).exp(), (now - x["reference"]).clamp(-40, 40)
        kl = {"0": d, "1": d**2 / 2, "2": torch.expm1(-d) + d, "3": rho * d}[estimator]
        weight = (x["proximal"] - x["behavior"]).clamp(-10, 10).exp().clamp(max=1.1)
        return token_mean(weight * clipped(rho, x["advantages"], 0.1, 0.25) + 0.1 * kl, x["mask"])

    same(read("open-instruct", config | {"use_rho_correction": True, "rho_clamp_upper_bound": 1.1}), formula, x)


@pytest.mark.parametrize("mode", ["token-mean", "seq-mean-token-sum"])
def test_rolls_reductions(mode: str) -> None:
    x = batch(4)

    def formula(now: Tensor) -> Tensor:
        loss = clipped((now - x["proximal"]).exp(), x["advantages"], 0.2, 0.2)
        return token_mean(loss, x["mask"]) if mode == "token-mean" else (loss * x["mask"]).sum(-1).mean()

    same(read("roll", {"pg_clip": 0.2, "dual_clip_loss": False, "loss_agg_mode": mode}), formula, x)


# ── advantages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("framework", "settings", "wanted"),
    [
        (
            "open-instruct",
            {"advantage_normalization_type": "max_rl"},
            (TWO - TWO.mean(1, keepdim=True)) / (TWO.mean(1, keepdim=True) + 1e-8),
        ),
        (
            "slime",
            {"advantage_estimator": "gspo", "grpo_std_normalization": False},
            TWO - TWO.mean(1, keepdim=True),
        ),
        (
            "slime",
            {"advantage_estimator": "cispo"},
            (TWO - TWO.mean(1, keepdim=True)) / (TWO.std(1, keepdim=True) + 1e-6),
        ),
        (
            "nemo-rl",
            {"grpo": {"adv_estimator": {"name": "raw_reward"}, "normalize_advantages": False}},
            (TWO - TWO.mean()) / TWO.std(correction=0),
        ),
        (
            "roll",
            {"adv_estimator": "reinforce", "norm_mean_type": "group"},
            TWO - TWO.mean(1, keepdim=True),
        ),
    ],
)
def test_rewards_of_two_groups(framework: str, settings: dict[str, Any], wanted: Tensor) -> None:
    found = advantages(read(framework, settings), REWARDS, group=GROUP)
    torch.testing.assert_close(found[:, 0], wanted.reshape(-1))


def test_prime_rls_baseline_may_weigh_answers_by_their_length() -> None:
    lengths = torch.tensor([1, 2, 3, 4, 4, 3, 2, 1])
    mask = torch.arange(4) < lengths[:, None]
    heavy = (lengths.view(2, 4) * TWO).sum(1, keepdim=True) / lengths.view(2, 4).sum(1, keepdim=True)
    settings = {"orchestrator": {"algo": {"type": "grpo", "length_weighted_baseline": True}}}
    found = advantages(read("prime-rl", settings), REWARDS, mask, group=GROUP)
    torch.testing.assert_close(found[:, 0], (TWO - heavy).reshape(-1))


@pytest.mark.parametrize("framework", ["slime", "miles", "roll"])
def test_returns_step_through_untrained_tokens_with_the_kl_and_are_whitened(framework: str) -> None:
    x = batch(12)
    mask, gamma, beta = x["mask"], 0.9, 0.1
    kl = (x["proximal"] - x["reference"]) * mask
    token = -beta * kl
    for row in range(4):
        token[row, int(mask[row].nonzero()[-1])] += REWARDS[row]
    found, running = torch.zeros_like(token), torch.zeros(4).double()
    for t in reversed(range(6)):
        running = token[:, t] + gamma * running
        found[:, t] = running
    kept = found[mask]
    wanted = (found - kept.mean()) / (kept.var() + 1e-8).sqrt() * mask
    settings: dict[str, Any] = {"advantage_estimator": "reinforce_plus_plus", "normalize_advantages": True}
    settings |= {"gamma": gamma, "kl_coef": beta}
    if framework == "roll":
        settings = {"adv_estimator": "reinforce", "gamma": gamma, "whiten_advantages": True}
        settings |= {"add_token_level_kl": True, "init_kl_coef": beta, "kl_penalty": "kl", "reward_clip": None}
    reading = read(framework, settings)
    assert reading.advantage is not None
    assert reading.reward_kl is not None
    assert reading.reward_kl.estimator == "k1"
    result = trimtab.advantages(
        reading.advantage, rewards=REWARDS[:4], mask=mask, token_rewards=-reading.reward_kl.coefficient * kl
    )
    torch.testing.assert_close(result.advantages, wanted)


def test_nemo_rls_gae_skips_untrained_tokens() -> None:
    x = batch(13)
    mask, gamma, lam = x["mask"], 0.9, 0.8
    values = torch.randn(4, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    wanted = torch.zeros_like(values)
    for row in range(4):
        places = [int(each) for each in mask[row].nonzero()[:, 0]]
        carried = after = 0.0
        for t in reversed(places):
            reward = float(REWARDS[row]) if t == places[-1] else 0.0
            carried = reward + gamma * after - float(values[row, t]) + gamma * lam * carried
            after = float(values[row, t])
            wanted[row, t] = carried
    config = {"name": "gae", "gae_gamma": gamma, "gae_lambda": lam, "normalize_advantages": False}
    found = advantages(read("nemo-rl", {"grpo": {"adv_estimator": config}}), REWARDS[:4], mask, values=values)
    torch.testing.assert_close(found, wanted)
