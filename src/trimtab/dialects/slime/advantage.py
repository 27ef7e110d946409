"""slime: from rewards to advantages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trimtab.config.advantages import WHITEN, Distillation, Estimator, Gae, Grpo, Normalise, ReinforcePlusPlus
from trimtab.config.losses import KlPenalty
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import ALL, AdvantagePart, refuse
from trimtab.dialects.slime.keys import DISTILLED, FLASH
from trimtab.errors import ConfigError

CENTRED = ("grpo", "gspo", "cispo", "reinforce_plus_plus_baseline")
"""Estimators whose rewards are centred in their group."""


def advantage_of(given: Given) -> AdvantagePart:
    """What rewards say; under --use-opd the teacher's log-ratio on top of it, and both normalised together."""
    title = given.dialect.title
    refuse(given["use_mopd"], f"{title} --use-mopd", "teachers move the advantages, weighed by ratios of their own")
    refuse(
        given["use_opd"] and given["opd_type"] == "self",
        f"{title} --opd-type self",
        "the model is its own teacher, by a divergence over the vocabulary in place of loss and advantages",
    )
    whiten = WHITEN if given["normalize_advantages"] else None
    if given["advantage_estimator"] == DISTILLED:
        refuse(
            given["use_opd"], f"{title} --use-opd with advantage_estimator {DISTILLED}", "the teacher would count twice"
        )
        return AdvantagePart(advantage=Distillation(student=_student(given), normalise=whiten, **ALL))
    if not given["use_opd"]:
        return _from_rewards(given, whiten)
    found = _from_rewards(given, None)
    both: Any = Distillation(
        coefficient=given["opd_kl_coef"],
        student=_student(given),
        base=found.advantage,  # pyright: ignore[reportArgumentType]
        normalise=whiten,
        **ALL,
    )
    return replace(found, advantage=both)


def _student(given: Given) -> Any:
    """Whose log-probs are compared with the teacher's: the trainer's before the step, or those of the rollout."""
    return "behavior" if given["use_rollout_logprobs"] else "proximal"


def _from_rewards(given: Given, whiten: Normalise | None) -> AdvantagePart:
    """Rewards centred in their group and, for GRPO, divided by its deviation; returns for REINFORCE++ and PPO."""
    name, penalty = given["advantage_estimator"], given["kl_coef"]
    title = given.dialect.title
    refuse(
        name == FLASH, f"{title} advantage_estimator {name}", "its baseline is the mean over all prompts of the batch"
    )
    if name not in CENTRED:
        kl = KlPenalty(coefficient=penalty, estimator=_estimator(given)) if penalty else None
        return AdvantagePart(advantage=_returns(given, whiten), reward_kl=kl)
    if not given["rewards_normalization"]:
        raise ConfigError(
            f"{title} --disable-rewards-normalization with advantage_estimator {name} cannot be said: rewards themselves become "
            "advantages. Use reinforce_plus_plus, or normalise."
        )
    refuse(
        name == "reinforce_plus_plus_baseline" and penalty,
        f"{title} --kl-coef with reinforce_plus_plus_baseline",
        "each token pays its own KL only, where ours pays the sum to come. Use --use-kl-loss",
    )
    scaled = name != "reinforce_plus_plus_baseline" and bool(given["grpo_std_normalization"])
    return AdvantagePart(advantage=Grpo(std=scaled, normalise=whiten, baseline="all"))


def _returns(given: Given, whiten: Normalise | None) -> Estimator:
    if given["advantage_estimator"] == "ppo":
        return Gae(gamma=given["gamma"], lam=given["lambd"], gaps="step", normalise=whiten, **ALL)
    return ReinforcePlusPlus(gamma=given["gamma"], gaps="step", normalise=whiten, **ALL)


def _estimator(given: Given) -> Any:
    named, title = given["kl_loss_type"], given.dialect.title
    refuse(
        named == "low_var_kl", f"{title} --kl-coef with --kl-loss-type low_var_kl", "use k3, which it holds within 10"
    )
    return named
