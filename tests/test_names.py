"""A name works wherever a value does."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import trimtab
from tests.waiting import LIMIT
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


# In a process of its own: the run-time type checker of the tests would answer first.
WRONG = """
import torch
import trimtab

log_probs, mask, rewards, group = -torch.ones(2, 3), torch.ones(2, 3), torch.ones(2), torch.zeros(2).long()
pair = {"behavior": log_probs, "proximal": log_probs, "mask": mask}
asked = {"current": log_probs, "advantages": rewards, "reference": log_probs, "entropy": -log_probs, **pair}
scored = {"rewards": rewards, "mask": mask, "group": group}
calls = [
    lambda: trimtab.correct(3, **pair),
    lambda: trimtab.correct(None, **pair),
    lambda: trimtab.policy_loss("clip", correction=[], **asked),
    lambda: trimtab.policy_loss([], **asked),
    lambda: trimtab.policy_loss("clip", kl="0.01", **asked),
    lambda: trimtab.policy_loss("clip", kl=True, **asked),
    lambda: trimtab.policy_loss("clip", entropy_bonus={}, **asked),
    lambda: trimtab.policy_loss("clip", denominator=3, **asked),
    lambda: trimtab.kl_penalty([], policy=log_probs, reference=log_probs, mask=mask),
    lambda: trimtab.advantages(3, **scored),
    lambda: trimtab.advantages("grpo", shaping="zero", **scored),
    lambda: trimtab.shaped(None, rewards, mask=mask),
    lambda: trimtab.normalised(3, rewards),
]
for call in calls:
    try:
        call()
    except trimtab.TrimtabError as error:
        print(error)
"""
ANSWERS = """
A correction needs to be a Correction or a preset's name, got 3. Pass "seq-tis".
A correction needs to be a Correction or a preset's name, got None. Pass "seq-tis".
A correction needs to be a Correction or a preset's name, got []. Pass "seq-tis".
policy_loss needs a loss such as trimtab.Clip(), got []. See trimtab.config.losses.
kl needs to be a KlPenalty or its coefficient, got '0.01'. Pass 0.01.
KlPenalty needs coefficient to be a number, got True. coefficient: The weight of the term.
entropy_bonus needs to be an EntropyBonus or its coefficient, got {}. Pass 0.01.
denominator needs to be a Denominator, got 3. Pass trimtab.Denominator.of(masks).
kl_penalty needs to be a KlPenalty or its coefficient, got []. Pass 0.01.
advantages needs an estimator or its name, got 3. Pass trimtab.Grpo() or "grpo".
shaping needs to be a Shaping, got 'zero'. Pass trimtab.Shaping(no_eos="zero").
shaping needs to be a Shaping, got None. Pass trimtab.Shaping(no_eos="zero").
normalised needs a Normalise, got 3. Pass trimtab.Normalise().
"""


def test_a_wrong_type_is_answered_in_one_sentence():
    run = subprocess.run([sys.executable, "-c", WRONG], capture_output=True, text=True, timeout=LIMIT, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines() == ANSWERS.strip().splitlines()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_coefficient_is_a_finite_number(value: float):
    with pytest.raises(ConfigError, match=r"^KlPenalty needs coefficient to be a finite number"):
        trimtab.kl_penalty(value, policy=BEHAVIOR, reference=PROXIMAL, mask=MASK)


@pytest.mark.parametrize("text", ["correction=3", "loss=[]", "advantage=3", "kl=x"])
def test_the_command_line_answers_a_wrong_type_in_one_line(text: str):
    with pytest.raises(ConfigError) as told:
        config_from([text])
    assert len(str(told.value).splitlines()) == 1
    assert " got " in str(told.value)


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
