"""NeMo-RL: ClippedPGLoss."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, refuse
from trimtab.errors import ConfigError


def loss_of(given: Given) -> LossPart:
    """A token mean, or a mean per sequence; at sequence level GSPO."""
    refuse(
        given["positive_example_nll_weight"],
        "NeMo-RL positive_example_nll_weight",
        "it adds the likelihood of rewarded answers to the loss. Leave it 0",
    )
    _check(given)
    mode = "token-mean" if given["token_level_loss"] else "seq-mean-token-mean"
    return LossPart(loss=_loss(given), reduction=Reduction(mode=mode), kl=_kl(given))


def _check(given: Given) -> None:
    """What NeMo-RL refuses itself."""
    if given["sequence_level_importance_ratios"] and given.has("token_level_loss") and given["token_level_loss"]:
        raise ConfigError("NeMo-RL sequence_level_importance_ratios needs token_level_loss false, got true.")
    if given["use_cispo"]:
        for label in ("disable_ppo_ratio", "force_on_policy_ratio", "sequence_level_importance_ratios", "ratio_clip_c"):
            if given[label]:
                raise ConfigError(f"NeMo-RL use_cispo and {label} exclude each other. Drop one.")


def _kl(given: Given) -> KlPenalty | None:
    penalty = given["reference_policy_kl_penalty"]
    if not penalty or given["use_kl_in_reward"]:
        return None
    refuse(
        given["use_on_policy_kl_approximation"],
        "NeMo-RL use_on_policy_kl_approximation",
        "value and gradient of the KL are weighed by current/behavior. Switch it off",
    )
    kind = given["reference_policy_kl_type"]
    refuse(
        kind != "k3",
        f"NeMo-RL reference_policy_kl_type {kind} in the loss",
        "its gradient also runs through the probability of the sample, which ours has for k3. Use k3, or pay the KL in the reward",
    )
    return KlPenalty(coefficient=penalty, gradient="unbiased", **kl_settings(given))


def kl_settings(given: Given) -> dict[str, Any]:
    """The estimate of the KL, and how it is held."""
    return {
        "estimator": given["reference_policy_kl_type"],
        "input_limit": given["kl_input_clamp_value"],
        "output_limit": given["kl_output_clamp_value"],
    }


def _loss(given: Given) -> Objective:
    low, high = given["ratio_clip_min"], given["ratio_clip_max"]
    if given["disable_ppo_ratio"]:
        return ours.Reinforce()
    if given["use_cispo"]:
        return ours.Cispo(lower=1 - low, upper=1 + high)
    if given["sequence_level_importance_ratios"]:
        return ours.Gspo(low=low, high=high, dual=given["ratio_clip_c"])
    return ours.Clip(low=low, high=high, dual=given["ratio_clip_c"])
