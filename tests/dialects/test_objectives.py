"""Losses and advantages that are read, against the framework's formula written out token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import trimtab
from tests.dialects.examples.verl import PRESETS as VERL
from trimtab.dialects import Reading, read

FEW = settings(max_examples=30, deadline=None)


def batch(seed: int, rows: int = 4, width: int = 6) -> dict[str, Tensor]:
    """Random log-probs and advantages with holes in the mask; every row has tokens."""
    make = torch.Generator().manual_seed(seed)
    noise = [torch.randn(rows, width, generator=make, dtype=torch.float64) for _ in range(5)]
    mask = torch.rand(rows, width, generator=make) > 0.3
    mask[:, 0] = True
    behavior = noise[0].abs().neg() - 0.2
    return {
        "mask": mask,
        "behavior": behavior,
        "proximal": behavior + 0.3 * noise[1],
        "current": behavior + 0.3 * noise[1] + 0.2 * noise[2],
        "reference": behavior + 0.5 * noise[3],
        "advantages": noise[4],
    }


def ours(reading: Reading, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Loss and gradient of a reading on a batch."""
    assert reading.loss is not None
    assert reading.reduction is not None
    current = x["current"].clone().requires_grad_()
    reference = x["behavior"] if reading.kl_to == "behavior" else x["reference"]
    found = trimtab.policy_loss(
        reading.loss,
        current=current,
        proximal=x["proximal"],
        behavior=None if reading.correction is None else x["behavior"],
        reference=reference if reading.kl is not None else None,
        advantages=x["advantages"] * reading.advantage_scale,
        mask=x["mask"],
        correction=reading.correction,
        reduction=reading.reduction,
        kl=reading.kl,
    )
    found.loss.backward()
    assert current.grad is not None
    return found.loss.detach(), current.grad


def slope(loss: Any, x: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Value and gradient of a formula of the current log-probs."""
    current = x["current"].clone().requires_grad_()
    value = loss(current)
    (found,) = torch.autograd.grad(value, current)
    return value.detach(), found


def same(reading: Reading, formula: Any, x: dict[str, Tensor], *, value: bool = True) -> None:
    found, wanted = ours(reading, x), slope(formula, x)
    torch.testing.assert_close(found[1], wanted[1])
    if value:
        torch.testing.assert_close(found[0], wanted[0])


def row_mean(value: Tensor, mask: Tensor) -> Tensor:
    return ((value * mask).sum(-1) / mask.sum(-1)).mean()


@given(st.integers(0, 10**6), st.booleans())
@FEW
def test_roll_clips_twice_adds_k3_and_scales_both(seed: int, ranged: bool) -> None:
    x = batch(seed)
    config = {"pg_clip": 0.2, "pg_clip_low": 0.1, "pg_clip_high": 0.3, "use_pg_clip_range": ranged}
    low, high = (0.1, 0.3) if ranged else (0.2, 0.2)
    config |= {"dual_clip_loss": True, "use_kl_loss": True, "kl_loss_coef": 0.1, "rl_loss_coef": 0.5}

    def formula(current: Tensor) -> Tensor:
        rho, a = (current - x["proximal"]).exp(), x["advantages"]
        loss = -torch.min(rho * a, rho.clamp(1 - low, 1 + high) * a)
        loss = torch.where(a < 0, -torch.max(-loss, 1.4 * a), loss)
        d = current - x["reference"]
        return 0.5 * row_mean(loss + 0.1 * ((-d).exp() - 1 + d).clamp(-10, 10), x["mask"])

    same(read("roll", config), formula, x)


ROLL_VARIANTS: dict[str, Any] = {
    "vanilla": lambda now, rho, a, log: -a * now,
    "tis": lambda now, rho, a, log: -rho.clamp(0, 1) * a * now,
    "cispo": lambda now, rho, a, log: -rho.clamp(0.9, 1.1) * a * now,
    "kimi15": lambda now, rho, a, log: -a * now + 0.05 * log**2,
}


@pytest.mark.parametrize("name", ROLL_VARIANTS)
def test_rolls_policy_gradient_variants(name: str) -> None:
    x = batch(3)

    def formula(current: Tensor) -> Tensor:
        log = current - x["proximal"]
        return row_mean(ROLL_VARIANTS[name](current, log.exp().detach(), x["advantages"], log), x["mask"])

    same(read("roll", {"actor_train": {"pg_variant": name}}), formula, x)


def twice_clipped(now: Tensor, x: dict[str, Tensor], low: float, high: float, most: float) -> Tensor:
    """max(−Aρ, −A·clip ρ), where A < 0 at most −A·c; per token."""
    rho, worth = (now - x["proximal"]).exp(), x["advantages"]
    loss = torch.maximum(-worth * rho, -worth * rho.clamp(1 - low, 1 + high))
    return torch.where(worth < 0, torch.minimum(loss, -worth * most), loss)


@given(st.integers(0, 10**6), st.booleans())
@FEW
def test_nemo_rl_clips_twice_by_tokens_or_by_rows(seed: int, by_token: bool) -> None:
    x = batch(seed)
    config = {"ratio_clip_min": 0.1, "ratio_clip_max": 0.25, "ratio_clip_c": 1.3, "token_level_loss": by_token}

    def formula(now: Tensor) -> Tensor:
        loss = twice_clipped(now, x, 0.1, 0.25, 1.3)
        return (loss * x["mask"]).sum() / x["mask"].sum() if by_token else row_mean(loss, x["mask"])

    same(read("nemo-rl", {"loss_fn": config}), formula, x)


@given(st.integers(0, 10**6))
@FEW
def test_slime_clips_twice_and_averages_by_rows(seed: int) -> None:
    x = batch(seed)
    config = {"advantage_estimator": "grpo", "eps_clip": 0.1, "eps_clip_high": 0.25, "eps_clip_c": 1.3}
    same(read("slime", config), lambda now: row_mean(twice_clipped(now, x, 0.1, 0.25, 1.3), x["mask"]), x)


def test_rolls_normed_sum_is_divided_by_the_width_alone() -> None:
    x = batch(4)
    settings_ = {"actor_train": {"pg_variant": "vanilla"}, "loss_agg_mode": "seq-mean-token-sum-norm"}
    same(read("roll", settings_, width=6), lambda now: (-x["advantages"] * now * x["mask"]).sum() / 6, x)
    assert read("roll", settings_).reduction is None
    assert read("roll", settings_ | {"sequence_length": 9}).reduction == trimtab.Reduction(mode="token-sum", constant=8)


@given(st.integers(0, 10**6), st.sampled_from(["0", "1", "2", "3"]), st.sampled_from(["token", 7.0]))
@FEW
def test_open_instruct_cispo_has_no_lower_bound_and_four_estimators(seed: int, estimator: str, count: Any) -> None:
    x = batch(seed)
    config = {"loss_fn": "cispo", "beta": 0.1, "kl_estimator": estimator, "loss_denominator": count}

    def formula(current: Tensor) -> Tensor:
        rho, d = (current - x["proximal"]).exp(), (current - x["reference"]).clamp(-40, 40)
        kls = {"0": d, "1": d**2 / 2, "2": torch.expm1(-d) + d, "3": rho * d}
        loss = -x["advantages"] * rho.detach().clamp(max=1.272) * current
        weight = (x["proximal"] - x["behavior"]).clamp(-10, 10).exp().clamp(max=2.0)
        return ((weight * loss + 0.1 * kls[estimator]) * x["mask"]).sum() / (
            x["mask"].sum() if count == "token" else count
        )

    same(read("open-instruct", config | {"use_rho_correction": True}), formula, x)


@given(st.integers(0, 10**6))
@FEW
def test_prime_rl_before_02bdca2e4_weighs_and_pulls_by_the_ratio(seed: int) -> None:
    x = batch(seed)
    config = {"ratio_type": "token", "token_mask_low": 0.5, "token_mask_high": 1.5, "adv_tau": 2.0, "kl_tau": 0.3}

    def formula(current: Tensor) -> Tensor:
        log = (current - x["behavior"]).detach()
        means = (log * x["mask"]).sum(-1, keepdim=True) / x["mask"].sum(-1, keepdim=True)
        keep = (log.exp() >= 0.5) & (log.exp() <= 1.5) & (means.exp() >= 0.1) & (means.exp() <= 10)
        keep = keep & ((log.exp() * x["mask"]).amax(-1, keepdim=True) <= 100)
        return -(log.exp() * (2 * x["advantages"] - 0.3 * log) * current * keep * x["mask"]).sum() / x["mask"].sum()

    same(read("prime-rl", config), formula, x, value=False)


@given(st.integers(0, 10**6), st.floats(0.01, 1.0))
@FEW
def test_areals_budget_sorts_and_drops_until_the_mean_is_below(seed: int, tau: float) -> None:
    x = batch(seed)
    rule = read("areal", {"use_decoupled_loss": True, "m2_threshold": tau}).correction
    assert rule is not None
    found = trimtab.correct(rule, proximal=x["proximal"], behavior=x["behavior"], mask=x["mask"]).kept
    squares = (x["proximal"] - x["behavior"]).float().square()
    order = sorted(squares[x["mask"]].tolist(), reverse=True)
    drop = next((k for k in range(len(order)) if sum(order[k:]) / len(order[k:]) < tau), len(order) - 1)
    assert torch.equal(found, x["mask"] & (squares <= order[drop]))
    assert found.any()


# ── OpenRLHF ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.floats(-60, 60), min_size=1, max_size=8), st.sampled_from(["k1", "k2", "k3"]), st.booleans())
@FEW
def test_openrlhfs_kl_is_held_at_the_same_place_though_only_one_of_us_holds_its_input(
    distances: list[float], estimator: str, unbiased: bool
) -> None:
    config = {"algo.kl.use_loss": True, "algo.kl.init_coef": 0.1, "algo.kl.estimator": estimator}
    reading = read("openrlhf", config | {"algo.kl.unbiased_gradient": unbiased, "actor.eps_clip": 0.2})
    x = {name: each[:1, : len(distances)] for name, each in batch(1, width=8).items()}
    x["mask"] = torch.ones_like(x["mask"])
    x["reference"] = x["current"] - torch.tensor([distances], dtype=torch.float64)
    x["advantages"] = torch.zeros_like(x["advantages"])

    def formula(current: Tensor) -> Tensor:
        d = current - x["reference"]
        held = d.clamp(min=-10)
        value = {"k1": d, "k2": d**2 / 2, "k3": (-held).exp() - 1 + held}[estimator].clamp(-10, 10)
        if unbiased:
            weight = (current - x["proximal"]).exp().clamp(max=10).detach()
            value = value.detach() + weight * d**2 / 2 - (weight * d**2 / 2).detach()
        return 0.1 * value.mean()

    same(reading, formula, x)


def openrlhf(config: dict[str, Any], x: dict[str, Tensor], rewards: Tensor, kl: Tensor) -> Tensor:
    """Rewards to advantages as its experience maker does, row by row."""
    name, (low, high) = config["algo.advantage.estimator"], config["reward.clip_range"]
    grouped = rewards.view(-1, 2)
    based = {
        "rloo": grouped - grouped.flip(-1),
        "reinforce_baseline": grouped - grouped.mean(-1, keepdim=True),
        "dr_grpo": grouped - grouped.mean(-1, keepdim=True),
        "group_norm": (grouped - grouped.mean(-1, keepdim=True)) / (grouped.std(-1, keepdim=True) + 1e-9),
        "flash_reinforce": grouped - grouped.mean(),
        "reinforce": grouped,
    }[name].reshape(-1)
    mask, gamma = x["mask"], config["algo.advantage.gamma"] if name == "reinforce" else 1.0
    token = -config["algo.kl.init_coef"] * kl * mask
    for row in range(len(token)):
        token[row, int(mask[row].nonzero()[-1])] += based[row].clamp(low, high)
    returns, running = torch.zeros_like(token), torch.zeros(len(token), dtype=token.dtype)
    for t in reversed(range(token.shape[1])):
        running = token[:, t] + gamma * running
        returns[:, t] = running
    if name in ("reinforce", "reinforce_baseline"):
        mean = returns[mask].mean()
        returns = (returns - mean) / (returns[mask] - mean).square().mean().clamp(min=1e-8).sqrt()
    return returns * mask


@pytest.mark.parametrize(
    "name", ["reinforce", "rloo", "reinforce_baseline", "group_norm", "dr_grpo", "flash_reinforce"]
)
@given(st.integers(0, 10**6), st.sampled_from([(-0.5, 0.4), (-10.0, 10.0)]))
@settings(max_examples=10, deadline=None)
def test_openrlhf_clips_after_the_baseline(name: str, seed: int, bounds: tuple[float, float]) -> None:
    x = batch(seed)
    make = torch.Generator().manual_seed(seed + 1)
    rewards, kl = torch.randn(4, generator=make).double(), 0.1 * torch.randn(4, 6, generator=make).double()
    config = {
        "algo.advantage.estimator": name,
        "algo.advantage.gamma": 0.9,
        "reward.clip_range": list(bounds),
        "algo.kl.init_coef": 0.05,
    }
    reading = read("openrlhf", config)
    assert reading.advantage is not None
    assert reading.reward_kl is not None
    found = trimtab.advantages(
        reading.advantage,
        rewards=rewards,
        mask=x["mask"],
        group=torch.tensor([0, 0, 1, 1]),
        token_rewards=-reading.reward_kl.coefficient * kl,
        shaping=reading.shaping[-1] if reading.shaping else None,
    )
    torch.testing.assert_close(found.advantages, openrlhf(config, x, rewards, kl))


# ── the others' advantages ─────────────────────────────────────────────────────────────────────────────────────────────


def advantages(reading: Reading, rewards: Tensor, mask: Tensor | None = None, **more: Any) -> Tensor:
    assert reading.advantage is not None
    mask = torch.ones(len(rewards), 1) if mask is None else mask
    shaping = reading.shaping[-1] if reading.shaping else None
    return trimtab.advantages(reading.advantage, rewards=rewards, mask=mask, shaping=shaping, **more).advantages


REWARDS = torch.tensor([1.0, 0.0, 0.0, 0.0, 2.0, 1.0, 0.0, 3.0], dtype=torch.float64)
GROUP = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
TWO = REWARDS.view(2, 4)


@pytest.mark.parametrize(
    ("framework", "config", "wanted"),
    [
        ("open-instruct", {"advantage_normalization_type": "centered"}, TWO - TWO.mean(1, keepdim=True)),
        (
            "open-instruct",
            {"advantage_normalization_type": "standard"},
            (TWO - TWO.mean(1, keepdim=True)) / (TWO.std(1, keepdim=True, correction=0) + 1e-8),
        ),
        ("prime-rl", {"orchestrator": {"algo": {"type": "grpo"}}}, TWO - TWO.mean(1, keepdim=True)),
        (
            "prime-rl",
            {"orchestrator": {"algo": {"type": "max_rl"}}},
            (TWO - TWO.mean(1, keepdim=True)) / TWO.mean(1, keepdim=True),
        ),
        (
            "roll",
            {"adv_estimator": "grpo", "reward_clip": 1.0},
            ((TWO - TWO.mean(1, keepdim=True)) / (TWO.std(1, keepdim=True) + 1e-6)).clamp(-1, 1),
        ),
        (
            "roll",
            {"adv_estimator": "reinforce", "norm_mean_type": "batch", "norm_std_type": "batch"},
            (TWO - TWO.mean()) / (TWO.std() + 1e-6),
        ),
        (
            "nemo-rl",
            {"grpo": {"adv_estimator": {"name": "reinforce_plus_plus"}}},
            (TWO - TWO.mean(1, keepdim=True)) / (TWO - TWO.mean(1, keepdim=True)).std(correction=0),
        ),
        (
            "nemo-rl",
            {"grpo": {"adv_estimator": {"name": "raw_reward"}}},
            (TWO - TWO.mean()) / TWO.std(correction=0),
        ),
        (
            "slime",
            {"advantage_estimator": "reinforce_plus_plus", "normalize_advantages": True},
            (TWO - TWO.mean()) / (TWO.var() + 1e-8).sqrt(),
        ),
    ],
)
def test_rewards_of_two_groups(framework: str, config: dict[str, Any], wanted: Tensor) -> None:
    found = advantages(read(framework, config), REWARDS, group=GROUP)
    torch.testing.assert_close(found[:, 0], wanted.reshape(-1))


def test_nemo_rls_gdpo_leaves_the_row_out_and_divides_without_eps() -> None:
    columns = torch.stack([REWARDS, REWARDS.flip(0)], -1)
    config = {"grpo": {"adv_estimator": {"name": "gdpo", "reward_weights": [1.0, 0.5]}}}
    found = advantages(read("nemo-rl", config), columns, group=GROUP)[:, 0]

    def alone(rewards: Tensor) -> Tensor:
        rows: list[float] = []
        for place, value in enumerate(rewards.tolist()):
            others = torch.tensor([r for at, r in enumerate(rewards.tolist()) if at != place], dtype=torch.float64)
            spread = float(others.std())
            rows.append((value - float(others.mean())) / (spread + 1e-6 if spread > 0 else 1.0))
        return torch.tensor(rows, dtype=torch.float64)

    parts = [torch.cat([alone(column[:4]), alone(column[4:])]) for column in columns.unbind(-1)]
    total = parts[0] + 0.5 * parts[1]
    torch.testing.assert_close(found, (total - total.mean()) / total.std())


def test_slime_ppo_and_roll_gae_step_through_untrained_tokens() -> None:
    # tokens: trained, tool, trained; values 0.5, –, 0.25; reward 1 at the end; γ = 0.5, λ = 1
    # δ₂ = 1 − 0.25 = 0.75; δ₁ (tool, value 0) = 0.5·0.25 = 0.125; δ₀ = 0.5·0 − 0.5 = −0.5
    # A₂ = 0.75; A₁ = 0.125 + 0.5·0.75 = 0.5; A₀ = −0.5 + 0.5·0.5 = −0.25
    mask, values = torch.tensor([[1, 0, 1]]), torch.tensor([[0.5, 9.0, 0.25]])
    for framework, config in (
        ("slime", {"advantage_estimator": "ppo", "gamma": 0.5, "lambd": 1.0}),
        ("roll", {"adv_estimator": "gae", "gamma": 0.5, "lambd": 1.0}),
    ):
        found = advantages(read(framework, config), torch.tensor([1.0]), mask, values=values)
        torch.testing.assert_close(found, torch.tensor([[-0.25, 0.0, 0.75]]))


def test_nemo_rls_lambda_follows_the_length_and_the_critics_does_not() -> None:
    config = {"name": "gae", "length_adaptive_alpha": 0.5, "gae_lambda": 0.9, "normalize_advantages": False}
    reading = read("nemo-rl", {"grpo": {"adv_estimator": config}})
    assert reading.advantage == trimtab.Gae(length_adaptive=0.5, value_lam=0.9, normalise=None, baseline="all")


def test_skyrls_batch_normalisation_as_documented_runs_over_tokens() -> None:
    config = {"advantage_estimator": "grpo", "advantage_batch_normalize": True}
    norm = read("skyrl", config, documented=True).advantage_norm
    assert norm is not None
    values, mask = torch.tensor([[1.0, 1.0], [3.0, 3.0]]), torch.ones(2, 2)
    assert trimtab.normalised(norm, values, mask=mask).tolist() == [[-1.0, -1.0], [1.0, 1.0]]


@pytest.mark.parametrize(
    ("framework", "config", "coefficient"),
    [
        ("verl", {"entropy_coeff": 0.01}, 0.01),
        ("skyrl", {"use_entropy_loss": True, "entropy_loss_coef": 0.02}, 0.02),
        ("openrlhf", {"actor.entropy_coef": 0.03}, 0.03),
        ("slime", {"entropy_coef": 0.04}, 0.04),
        ("roll", {"entropy_loss_coef": 0.05}, 0.05),
    ],
)
def test_an_entropy_bonus_is_read(framework: str, config: dict[str, Any], coefficient: float) -> None:
    bonus = read(framework, config).entropy
    assert bonus is not None
    assert bonus.coefficient == coefficient


@pytest.mark.parametrize(
    ("option", "mode", "v1", "denominator"),
    [
        ("seq_mean_k3", "token-mean", True, "trained"),
        ("seq_mean_k3", "token-mean", False, "kept"),
        ("token_k3", "seq-mean-token-mean", True, "kept"),
        ("seq_mean_k3,token_k3", "seq-mean-token-mean", False, "kept"),
        (
            "seq_mean_k3",
            "seq-mean-token-mean",
            True,
            "trained",
        ),  # divided by all rows; of a rejected one nothing is left
        ("seq_mean_k3", "seq-mean-token-sum", True, "trained"),
        ("seq_mean_k3", "seq-mean-token-sum", False, "trained"),
        ("seq_mean_k3", "token-sum", False, "trained"),
    ],
)
def test_what_verl_counts_after_rejection(option: str, mode: str, v1: bool, denominator: str) -> None:
    rule = read(
        "verl",
        {
            "algorithm": {"rollout_correction": {"rollout_rs": option, "rollout_rs_threshold": 1.0}},
            "actor_rollout_ref": {"actor": {"loss_agg_mode": mode}},
            "trainer": {"use_v1": v1},
        },
    ).correction
    assert rule is not None
    assert rule.denominator == denominator


def test_a_penalty_in_the_reward_is_read_with_its_estimator() -> None:
    reading = read(
        "verl", {"algorithm": {"use_kl_in_reward": True, "kl_penalty": "low_var_kl", "kl_ctrl": {"kl_coef": 0.2}}}
    )
    assert reading.reward_kl == trimtab.KlPenalty(coefficient=0.2, estimator="k3", input_limit=20.0, output_limit=10.0)
    assert read("skyrl", {"use_kl_in_reward": True, "kl_estimator_type": "k1"}).reward_kl is not None
    assert read("roll", {"add_token_level_kl": True, "kl_penalty": "mse"}).reward_kl == trimtab.KlPenalty(
        coefficient=0.2, estimator="k2"
    )
    assert read("slime", {"advantage_estimator": "ppo", "kl_coef": 0.1}).reward_kl is not None


def test_verls_presets_for_bypass_do_what_their_names_say_only_as_documented() -> None:
    assert len(VERL) == 19 + 1  # and decoupled_token_kpop of #6800
    rule = read("verl", VERL["bypass_pg_geo_rs_token_tis"], documented=True).correction
    assert rule is not None
    assert (rule.policies, len(rule.gates)) == ("bypass", 1)
    assert rule.weight is not None
    assert (rule.weight.level, rule.weight.upper) == ("token", 2.0)
    assert math.isclose(rule.gates[0].upper or 0, math.log(1.001))
