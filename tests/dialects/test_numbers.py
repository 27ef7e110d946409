"""Readings whose numbers are worked by hand: what a framework computes in corners its files seldom reach."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from tests.dialects.examples.verl import PRESETS as VERL
from trimtab import Gate
from trimtab.dialects import read, write
from trimtab.dialects.equivalence import with_plain_rewards
from trimtab.errors import ConfigError
from trimtab.logged import logged

ONES = torch.ones(2, 3).bool()


def close(ours: Tensor, wanted: list[list[float]] | list[float] | float) -> None:
    torch.testing.assert_close(ours, torch.tensor(wanted), rtol=1e-5, atol=1e-7)


def test_kpop_of_verl_is_a_preset_of_its_own() -> None:
    reading = read("verl", VERL["decoupled_token_kpop"])
    assert reading.correction is not None
    assert reading.correction.gates == (Gate(metric="binary_kl", direction="max", upper=2.0),)
    assert reading.correction.gates == trimtab.preset("kpop").gates


def test_areal_s_binary_kl_is_refused_as_shipped_and_read_as_documented() -> None:
    section = {"rejection_sampling": {"metric": "binary_kl", "upper": 2.0}}
    with pytest.raises(ConfigError, match="refused by AReaL's own validation"):
        read("areal", section)
    rule = read("areal", section, documented=True).correction
    assert rule is not None
    assert rule.gates == (Gate(metric="binary_kl", direction="max", upper=2.0),)
    assert rule.weight == trimtab.Weight(level="token")
    by_sequence = {"rejection_sampling": {"metric": "binary_kl", "level": "sequence", "agg": "max", "upper": 2.0}}
    rule = read("areal", by_sequence, documented=True).correction
    assert rule is not None
    assert (rule.gates[0].level, rule.gates[0].agg) == ("sequence", "max")


@pytest.mark.parametrize("loss", ["dppo", "rollout_is"])
def test_skyrl_s_masks_compare_proximal_with_behavior_under_a_loss_that_divides_by_behavior(loss: str) -> None:
    masks = {"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 2.0}
    settings = {"trainer": {"algorithm": {"policy_loss_type": loss, "off_policy_correction": masks}}}
    reading = read("skyrl", settings)
    assert reading.correction is not None
    assert reading.correction.policies == "bypass"
    behavior = torch.full((2, 3), -1.0)
    proximal = behavior + torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, -1.0]])  # ratios e and 1/e: out of [0.5, 2]
    current = behavior + torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])  # far from behavior: no matter to the mask
    out = trimtab.correct(reading.correction, behavior=behavior, proximal=proximal, current=current, mask=ONES)
    assert out.kept.tolist() == [[True, False, True], [True, True, False]]
    found = logged(reading, out.metrics)
    close(found["token_mask_ratio"], 2 / 6)
    close(found["is_ratio_max"], 2.7182818)  # of proximal over behavior
    refused = read("skyrl", {"policy_loss_type": loss, "off_policy_correction": {"tis_ratio_type": "token"}}).refused
    assert [each.part for each in refused] == ["correction"]
    assert "tis_ratio_type is not supported" in refused[0].text


@pytest.mark.parametrize(
    ("kind", "generation", "policy"),
    [
        # ℓ = log proximal − log behavior is 0.5 on one of six tokens, −1 on another
        ("k1", 0.5 / 6, -0.5 / 6),  # mean(−ℓ) and mean(ℓ)
        ("k2", (0.125 + 0.5) / 6, (0.125 + 0.5) / 6),  # mean(ℓ²/2)
        ("k3", (0.1487213 + 0.3678794) / 6, (0.1065307 + 0.7182818) / 6),  # e^ℓ − 1 − ℓ, and with −ℓ
    ],
)
def test_nemo_s_kl_errors_follow_its_kl_type(kind: str, generation: float, policy: float) -> None:
    settings = {"loss_fn": {"use_importance_sampling_correction": True, "reference_policy_kl_type": kind}}
    reading = read("nemo-rl", settings)
    assert reading.correction is not None
    behavior = torch.full((2, 3), -2.0)
    proximal = behavior + torch.tensor([[0.5, 0.0, 0.0], [0.0, -1.0, 0.0]])
    out = trimtab.correct(reading.correction, behavior=behavior, proximal=proximal, mask=ONES)
    found = logged(reading, out.metrics)
    close(found["gen_kl_error"], generation)
    close(found["policy_kl_error"], policy)


@pytest.mark.parametrize(
    ("scale", "wanted"),
    [
        # rewards 1 0 0 | 2 2 0: less the mean of the others 1 −½ −½ | 1 1 −2
        ("none", [1.0, -0.5, -0.5, 1.0, 1.0, -2.0]),
        # deviations √(1/3) and √(4/3)
        ("group", [1.7317508, -0.8658754, -0.8658754, 0.8659504, 0.8659504, -1.7319008]),
        # deviation of all six: squares about 5/6 are 9 − 25/6 = 29/6, over 5
        ("batch", [1.0169918, -0.5084959, -0.5084959, 1.0169918, 1.0169918, -2.0339837]),
    ],
)
def test_ms_swift_s_rloo_is_divided_by_the_deviation_of_the_rewards(scale: str, wanted: list[float]) -> None:
    reading = read("ms-swift", {"advantage_estimator": "rloo", "scale_rewards": scale})
    assert reading.advantage is not None
    found = trimtab.advantages(
        reading.advantage,
        rewards=torch.tensor([1.0, 0.0, 0.0, 2.0, 2.0, 0.0]),
        mask=torch.ones(6, 2).bool(),
        group=torch.tensor([0, 0, 0, 1, 1, 1]),
        shaping=reading.shaping[-1] if reading.shaping else None,
    ).advantages
    close(found[:, 0], wanted)
    close(found[:, 1], wanted)


def test_a_lone_valid_element_of_a_group_is_divided_by_one_where_areal_divides_it_so() -> None:
    settings = {"mean_level": None, "std_level": "group", "group_size": 2}
    estimator = read("areal", {"actor": {"adv_norm": settings}}).advantage
    assert estimator is not None
    norm = estimator.normalise
    assert norm is not None
    values, mask = torch.tensor([1.0, 3.0, 4.0, 9.0]), torch.tensor([True, True, True, False])
    found = trimtab.normalised(norm, values, mask=mask, group=torch.tensor([0, 0, 1, 1]))
    # about 0: √((1 + 9)/1) = √10; the lone 4 over 1 + 1e-5
    close(found, [1 / (10**0.5 + 1e-5), 3 / (10**0.5 + 1e-5), 4 / 1.00001, 0.0])


RECIPE: dict[str, Any] = {
    "experiment_name": "gsm8k",
    "gconfig": {"n_samples": 4},
    "actor": {
        "kl_ctl": 0.0,
        "reward_norm": {"mean_level": "group", "std_level": "group", "group_size": "${gconfig.n_samples}"},
    },
}
"""AReaL's main recipe: no critic, λ and the discount 1 by default."""


def test_areal_s_main_recipe_is_grpo_by_hand() -> None:
    reading = read("areal", RECIPE)
    assert isinstance(reading.advantage, trimtab.Grpo)
    found = trimtab.advantages(
        reading.advantage,
        rewards=torch.tensor([1.0, 0.0, 0.0, 0.0]),
        mask=torch.ones(4, 2).bool(),
        group=torch.zeros(4, dtype=torch.long),
        shaping=reading.shaping[0],
    ).advantages
    # mean 0.25; deviation √((0.5625 + 3·0.0625)/3) = 0.5, plus eps 1e-5: 0.75/0.50001 and −0.25/0.50001
    close(found[:, 0], [0.75 / 0.50001, *[-0.25 / 0.50001] * 3])
    close(found[:, 1], [0.75 / 0.50001, *[-0.25 / 0.50001] * 3])


def test_areal_s_recipe_with_a_critic_is_gae_and_without_one_but_with_a_lambda_a_discounted_sum() -> None:
    learning = read("areal", {**RECIPE, "critic": {"path": "${actor.path}"}})
    assert isinstance(learning.advantage, trimtab.Gae)
    assert isinstance(read("areal", {**RECIPE, "critic": None}).advantage, trimtab.Grpo)
    found = read("areal", {"actor": {"discount": 0.9, "gae_lambda": 0.5, "kl_ctl": 0.0}}).advantage
    # values are 0, so δ is the reward and its sum is discounted by γλ = 0.45
    assert isinstance(found, trimtab.ReinforcePlusPlus)
    assert found.gamma == 0.45


def test_grpo_goes_to_areal_and_back_with_the_size_of_its_groups() -> None:
    written = write("areal", advantage=trimtab.Grpo(eps=1e-6, baseline="all")).settings
    norm = {"mean_level": "group", "std_level": "group", "eps": 1e-6, "group_size": "${gconfig.n_samples}"}
    assert written["actor"]["reward_norm"] == norm
    assert read("areal", written).advantage == trimtab.Grpo(eps=1e-6, baseline="all")


def test_areal_s_recipe_goes_to_verl_but_for_the_clip_of_rewards() -> None:
    found = write("verl", read("areal", RECIPE), strict=False)
    assert [each.text for each in found.omissions] == [
        "verl has no key for the shaping of rewards (lower -20, upper 20)"
    ]
    assert found.settings["algorithm"]["adv_estimator"] == "grpo"
    # without the clip it is GRPO with verl's eps, and a group of one
    assert read("verl", found.settings).advantage == trimtab.Grpo(baseline="all", singleton="raw")


def test_a_bias_and_a_factor_on_rewards_are_divided_away_by_the_deviation() -> None:
    # 10·(R − 0.5) of (1, 0, 0, 0): 5, −5, −5, −5; deviation 5, eps 1e-5: 7.5/5.00001 = 0.75/(0.5 + 1e-6)
    actor = {**RECIPE["actor"], "reward_scaling": 10.0, "reward_bias": -0.5, "reward_clip": 20.0}
    scaled = read("areal", {**RECIPE, "actor": actor})
    plain = with_plain_rewards(scaled)
    # s·(R + b) = ±20 at R = ±2 + 0.5
    assert plain.shaping == (trimtab.Shaping(lower=-1.5, upper=2.5),)
    assert plain.advantage == trimtab.Grpo(eps=1e-6, baseline="all")
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0, 3.0, 1.0, -4.0, 0.0])
    ours, theirs = (
        trimtab.advantages(
            each.advantage,
            rewards=rewards,
            mask=torch.ones(8, 1).bool(),
            group=torch.arange(8) // 4,
            shaping=each.shaping[0],
        ).advantages[:, 0]
        for each in (scaled, plain)
        if each.advantage is not None
    )
    close(ours[:4], [0.75 / (0.5 + 1e-6), *[-0.25 / (0.5 + 1e-6)] * 3])
    close(ours, theirs.tolist())
