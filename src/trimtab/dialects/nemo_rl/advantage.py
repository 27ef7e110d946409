"""NeMo-RL: `adv_estimator`."""

from __future__ import annotations

from typing import Any

from trimtab.config.advantages import (
    WHITEN,
    Distillation,
    Estimator,
    Gae,
    Gdpo,
    Grpo,
    LeaveOneOut,
    Normalise,
    ReinforcePlusPlus,
)
from trimtab.config.losses import KlPenalty
from trimtab.dialects.framework import Given
from trimtab.dialects.nemo_rl.loss import kl_settings
from trimtab.dialects.parts import ALL, AdvantagePart, refuse
from trimtab.errors import ConfigError

BIASED = Normalise(unbiased=False, eps=1e-8, eps_at="floor")


def advantage_of(given: Given) -> AdvantagePart:
    """The named estimator, and the KL penalty in the reward of those that sum it."""
    name = given["adv_estimator.name"]
    penalty = given["reference_policy_kl_penalty"] if given["use_kl_in_reward"] else 0.0
    refuse(
        penalty and name == "reinforce_plus_plus",
        "NeMo-RL use_kl_in_reward with reinforce_plus_plus",
        "each token pays its own KL only, where ours pays the sum to come. Use the KL loss",
    )
    kl = KlPenalty(coefficient=penalty, **kl_settings(given)) if penalty and name == "gae" else None
    return AdvantagePart(advantage=_advantage(given, name), reward_kl=kl)


def _advantage(given: Given, name: str) -> Estimator:
    if name == "gdpo":
        return _gdpo(given)
    if name == "opd":
        return Distillation(**ALL)
    if name == "reinforce_plus_plus":
        centred = bool(given["minus_baseline"])
        return Grpo(std=False, normalise=BIASED, **ALL) if centred else ReinforcePlusPlus(normalise=BIASED, **ALL)
    if name == "raw_reward":
        return ReinforcePlusPlus(normalise=BIASED if given["normalize_advantages"] else None, **ALL)
    if name == "gae":
        return _gae(given)
    kind = LeaveOneOut if given["use_leave_one_out_baseline"] else Grpo
    return kind(std=given["normalize_rewards"], baseline="all")


def _gdpo(given: Given) -> Estimator:
    """Each reward as GRPO has it, then their sum over its deviation, without an eps."""
    if not given["reward_weights"]:
        raise ConfigError(
            "NeMo-RL adv_estimator gdpo needs reward_weights here, one number per reward; 1 where left out."
        )
    return Gdpo(
        weights=tuple(given["reward_weights"]),
        std=given["normalize_rewards"],
        leave_one_out=given["use_leave_one_out_baseline"],
        normalise=Normalise(unit="sequence", eps=0.0, eps_at="std"),
        baseline="all",
    )


def _gae(given: Given) -> Estimator:
    """Separate λ for critic and policy; that of the policy may follow the length."""
    split = given.is_on("gae_lambda_value", "gae_lambda_policy") or given["length_adaptive_alpha"] > 0
    fields: dict[str, Any] = {
        "gamma": given["gae_gamma"],
        "normalise": WHITEN if given["normalize_advantages"] else None,
    }
    if split:
        value = given["gae_lambda_value"]
        fields["value_lam"] = given["gae_lambda"] if value is None else value
    if given["length_adaptive_alpha"] > 0:
        return Gae(length_adaptive=given["length_adaptive_alpha"], **fields, **ALL)
    policy = given["gae_lambda_policy"]
    return Gae(lam=given["gae_lambda"] if policy is None else policy, **fields, **ALL)
