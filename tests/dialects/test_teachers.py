"""Teachers as frameworks have them, held against float64 forms written from their sources."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from trimtab import Distillation, Grpo, Normalise
from trimtab.dialects import Reading, read, write
from trimtab.errors import ConfigError

ROWS, WIDTH = 6, 5
GENERATOR = torch.Generator().manual_seed(3)


def noise(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=GENERATOR, dtype=torch.float64)


MASK = noise(ROWS, WIDTH) < 0.8
TEACHER, PROXIMAL, BEHAVIOR, CURRENT = (-4 * noise(ROWS, WIDTH) - 0.01 for _ in range(4))
REWARDS, GROUP = (noise(ROWS) > 0.5).double(), torch.arange(ROWS) // 3
POLICIES = {"proximal": PROXIMAL, "behavior": BEHAVIOR, "current": CURRENT}


def worth(reading: Reading) -> Tensor:
    rule = reading.advantage
    assert isinstance(rule, Distillation)
    rewards: dict[str, Any] = {} if rule.base is None else {"rewards": REWARDS, "group": GROUP}
    student = {rule.student: POLICIES[rule.student]}
    return trimtab.advantages(rule, mask=MASK, teacher=TEACHER, **student, **rewards).advantages


def grpo_by_hand(eps: float) -> Tensor:
    found = torch.zeros(ROWS, dtype=torch.float64)
    for name in GROUP.unique():
        members = name == GROUP
        centred = REWARDS[members] - REWARDS[members].mean()
        deviation = REWARDS[members].std()
        found[members] = centred / (deviation + eps) if deviation > 0 else 0.0
    return found[:, None].expand(ROWS, WIDTH)


def whitened(value: Tensor) -> Tensor:
    mean = value[MASK].mean()
    return (value - mean) * torch.rsqrt(value[MASK].var() + 1e-8)


@pytest.mark.parametrize("rollout", [False, True])
@pytest.mark.parametrize("normalised", [False, True])
def test_slime_adds_the_teachers_log_ratio_before_it_normalises(rollout: bool, normalised: bool) -> None:
    """slime 00c2d6db, apply_opd_kl_to_advantages: adv − opd_kl_coef·(student − teacher), then distributed_masked_whiten."""
    settings = {
        "advantage_estimator": "grpo",
        "use_opd": True,
        "opd_kl_coef": 0.3,
        "use_rollout_logprobs": rollout,
        "normalize_advantages": normalised,
    }
    student = BEHAVIOR if rollout else PROXIMAL
    by_hand = grpo_by_hand(1e-6) - 0.3 * (student - TEACHER)
    by_hand = whitened(by_hand) if normalised else by_hand
    torch.testing.assert_close(worth(read("slime", settings)), torch.where(MASK, by_hand, 0.0))


def test_slimes_estimator_of_before_is_the_teacher_alone() -> None:
    reading = read("slime", {"advantage_estimator": "on_policy_distillation"})
    torch.testing.assert_close(worth(reading), torch.where(MASK, TEACHER - PROXIMAL, 0.0))


def test_ms_swift_adds_it_to_what_was_normalised() -> None:
    """swift 4.5, expand_advantage_to_per_token: base + teacher_kl_coef·(teacher − old)."""
    reading = read("ms-swift", {"advantage_estimator": "grpo", "teacher_model": "t", "teacher_kl_coef": 0.7})
    torch.testing.assert_close(worth(reading), torch.where(MASK, grpo_by_hand(1e-4) + 0.7 * (TEACHER - PROXIMAL), 0.0))
    served = read("ms-swift", {"advantage_estimator": "grpo", "teacher_model_server": "http://x"})
    assert isinstance(served.advantage, Distillation)
    assert served.advantage.coefficient == 1.0
    without = read("ms-swift", {"advantage_estimator": "grpo", "teacher_kl_coef": 0.7})
    assert isinstance(without.advantage, Grpo)


def test_nemo_rl_has_no_reward_beside_it() -> None:
    """NeMo-RL 00925dd1, OPDAdvantageEstimator: (teacher − prev)·mask."""
    reading = read("nemo-rl", {"grpo": {"adv_estimator": {"name": "opd"}}})
    assert reading.advantage == Distillation()
    torch.testing.assert_close(worth(reading), torch.where(MASK, TEACHER - PROXIMAL, 0.0))


def test_prime_rl_trains_by_a_component_of_its_own() -> None:
    """prime-rl, ref_kl_loss_fn: −keep·sg(ref − p)·r + 1e-3·(log r)², keep where p − q >= −0.2, over all tokens."""
    settings = {"orchestrator": {"algo": {"type": "opd"}}, "trainer": {"loss": {"type": "icepop"}}}
    reading = read("prime-rl", settings)
    behavior = CURRENT + 2 * noise(ROWS, WIDTH) - 0.5
    behavior = behavior.clamp(max=-0.01)

    current = CURRENT.clone().requires_grad_(True)
    log_ratio = current - behavior
    keep = MASK & ((current.exp() - behavior.exp()) >= -0.2)
    assert 0 < keep.sum() < MASK.sum()
    each = -(keep * (TEACHER - current).detach() * log_ratio.exp()) + 1e-3 * MASK * log_ratio.square()
    (each.sum() / MASK.sum()).backward()
    wanted = current.grad

    mine = CURRENT.clone().requires_grad_(True)
    rule = reading.advantage
    assert isinstance(rule, Distillation)
    found = trimtab.policy_loss(
        reading.loss,  # pyright: ignore[reportArgumentType]
        current=mine,
        behavior=behavior,
        reference=behavior,
        advantages=trimtab.advantages(rule, mask=MASK, teacher=TEACHER, current=mine).advantages,
        mask=MASK,
        correction=reading.correction,
        reduction=reading.reduction,
        kl=reading.kl,
    )
    assert reading.kl_to == "behavior"
    torch.testing.assert_close(found.loss.detach(), each.detach().sum() / MASK.sum())
    found.loss.backward()
    torch.testing.assert_close(mine.grad, wanted)
    assert any("passes trainer.loss by" in each.text for each in reading.findings)


def test_verl_follows_a_teacher_in_place_of_rewards() -> None:
    """verl 0.9.1, distillation_loss: advantages −clamp(kl_penalty(current, teacher)) through the vanilla loss with its own clip."""
    section = {
        "enabled": True,
        "distillation_loss": {
            "loss_mode": "k1",
            "use_task_rewards": False,
            "use_policy_gradient": True,
            "loss_max_clamp": 1.5,
            "clip_ratio_low": 0.1,
            "clip_ratio_high": 0.3,
        },
    }
    reading = read("verl", {"distillation": section, "algorithm": {"adv_estimator": "grpo"}})
    assert reading.advantage == Distillation(student="current", limit=1.5)
    torch.testing.assert_close(worth(reading), torch.where(MASK, -(CURRENT - TEACHER).clamp(-1.5, 1.5), 0.0))
    assert reading.loss == trimtab.Clip(low=0.1, high=0.3, dual=3.0, log_limit=20.0)


def test_verls_own_defaults_are_a_kl_to_the_teacher_beside_the_rewards() -> None:
    section = {"enabled": True, "distillation_loss": {"distillation_loss_coef": 0.2, "loss_max_clamp": 5.0}}
    reading = read("verl", {"distillation": section, "algorithm": {"adv_estimator": "grpo"}})
    assert isinstance(reading.advantage, Grpo)
    assert reading.kl_to == "teacher"
    assert reading.kl == trimtab.KlPenalty(
        coefficient=0.2, estimator="k3", input_limit=20.0, output_limit=5.0, mask="kept"
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"use_policy_gradient": True, "loss_mode": "k1"}, "two policy losses are added, each clipped by itself"),
        ({"use_policy_gradient": True, "use_task_rewards": False}, "its gradient not that of the KL. Use k1"),
        ({"use_task_rewards": False}, "a KL to the teacher is all that is descended"),
        ({"loss_mode": "forward_kl_topk"}, "it compares the likeliest ids of the teacher"),
    ],
)
def test_what_verl_does_otherwise_is_refused_by_name(settings: dict[str, Any], sentence: str) -> None:
    section = {"enabled": True, "distillation_loss": settings}
    rule = {"adv_estimator": "grpo", "rollout_correction": {"rollout_is": "token"}}
    reading = read("verl", {"distillation": section, "algorithm": rule})
    assert any(sentence in each.text for each in reading.refused)


@pytest.mark.parametrize(
    ("framework", "rule"),
    [
        ("slime", Distillation(coefficient=0.25, base=Grpo(baseline="all"))),
        ("slime", Distillation(base=Grpo(std=False, baseline="all"), normalise=Normalise())),
        ("ms-swift", Distillation(coefficient=0.25, base=Grpo(eps=1e-4, baseline="all"))),
        ("nemo-rl", Distillation()),
        ("prime-rl", Distillation(student="current")),
    ],
)
def test_a_teacher_is_written_in_the_keys_of_those_that_have_one(framework: str, rule: Distillation) -> None:
    written = write(framework, Reading("slime", advantage=rule))
    assert written.omissions == ()
    assert read(framework, written.settings).advantage == rule


def test_a_teacher_no_framework_has_is_left_out_by_name() -> None:
    with pytest.raises(ConfigError, match="TRL does not support the advantage: it has no distillation"):
        write("trl", Reading("slime", advantage=Distillation()))
