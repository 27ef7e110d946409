"""A name works wherever a value does."""

from __future__ import annotations

import pytest
import torch

import trimtab
from trimtab.cli.train import config_from
from trimtab.config.losses import EntropyBonus, Gspo, KlPenalty
from trimtab.config.training import Train
from trimtab.errors import ConfigError, UnknownNameError

torch.manual_seed(0)
BEHAVIOR = -2 * torch.rand(4, 6)
PROXIMAL = BEHAVIOR + 0.3 * torch.randn(4, 6)
MASK = torch.ones(4, 6).bool()
REWARDS = torch.tensor([1.0, 0.0, 1.0, 1.0])
GROUP = torch.tensor([0, 0, 1, 1])


def test_a_correction_is_its_presets_name():
    named = trimtab.correct("token-tis", behavior=BEHAVIOR, proximal=PROXIMAL, mask=MASK)
    value = trimtab.correct(trimtab.preset("token-tis"), behavior=BEHAVIOR, proximal=PROXIMAL, mask=MASK)
    torch.testing.assert_close(named.weight, value.weight, rtol=0, atol=0)
    assert not torch.equal(named.weight, torch.ones_like(named.weight))


def test_a_loss_its_correction_and_its_terms_are_names_and_numbers():
    given = {
        "proximal": PROXIMAL,
        "behavior": BEHAVIOR,
        "reference": BEHAVIOR,
        "mask": MASK,
        "advantages": REWARDS - 0.5,
    }
    current, entropy = PROXIMAL + 0.1 * torch.randn(4, 6), torch.rand(4, 6)
    named = trimtab.policy_loss(
        "gspo", current=current, entropy=entropy, correction="token-tis", kl=0.01, entropy_bonus=0.02, **given
    )
    value = trimtab.policy_loss(
        trimtab.Gspo(),
        current=current,
        entropy=entropy,
        correction=trimtab.preset("token-tis"),
        kl=trimtab.KlPenalty(coefficient=0.01),
        entropy_bonus=trimtab.EntropyBonus(coefficient=0.02),
        **given,
    )
    torch.testing.assert_close(named.loss, value.loss, rtol=0, atol=0)
    assert {"policy/kl", "policy/entropy", "weight/max"} <= set(named.metrics)


def test_an_estimator_is_its_name():
    named = trimtab.advantages("rloo", rewards=REWARDS, mask=MASK, group=GROUP)
    value = trimtab.advantages(trimtab.Rloo(), rewards=REWARDS, mask=MASK, group=GROUP)
    torch.testing.assert_close(named.advantages, value.advantages, rtol=0, atol=0)


def test_a_name_that_does_not_exist_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean 'token-tis'"):
        trimtab.correct("token-tiss", behavior=BEHAVIOR, proximal=PROXIMAL, mask=MASK)
    with pytest.raises(UnknownNameError, match="Did you mean 'gspo'"):
        trimtab.policy_loss("gsp", current=PROXIMAL, proximal=PROXIMAL, mask=MASK, advantages=REWARDS)
    with pytest.raises(UnknownNameError, match="Did you mean 'grpo'"):
        trimtab.advantages("gprpo", rewards=REWARDS, mask=MASK, group=GROUP)


def test_a_run_takes_names_and_coefficients():
    run = Train.from_settings({"loss": "gspo", "advantage": "rloo", "kl": 0.01, "entropy_bonus": 0.02})
    assert run.loss == Gspo()
    assert run.advantage == trimtab.Rloo()
    assert run.kl == KlPenalty(coefficient=0.01)
    assert run.entropy_bonus == EntropyBonus(coefficient=0.02)


@pytest.mark.parametrize("kind", ["gae", "remax"])
def test_an_estimator_that_a_run_has_nothing_for_is_refused_when_it_is_read(kind: str):
    with pytest.raises(ConfigError, match=f"needs an advantage from rewards alone, got {kind}"):
        config_from([f"advantage.kind={kind}"])
