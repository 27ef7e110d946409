"""OpenRLHF: `--actor.*` losses, with KL and entropy terms."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import EntropyBonus, KlPenalty, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, bonus, reduction_of
from trimtab.errors import ConfigError


def two_numbers(given: Given, label: str) -> tuple[float, float]:
    """A setting that holds two numbers."""
    if len(given[label]) != 2:
        raise ConfigError(f"OpenRLHF {given.path(label)} needs two numbers, got {list(given[label])}.")
    first, second = given[label]
    return first, second


def loss_of(given: Given) -> LossPart:
    """PPO with the configured mean; GSPO with a sequence mean, always."""
    both = given["eps_clip_low_high"] is not None
    low, high = two_numbers(given, "eps_clip_low_high") if both else (given["eps_clip"], given["eps_clip"])
    if given["policy_loss_type"] == "gspo":
        return LossPart(
            loss=ours.Gspo(low=low, high=high, dual=given["dual_clip"]),
            reduction=Reduction(mode="seq-mean-token-mean"),
            kl=_kl(given),
            entropy=_entropy(given),
        )
    modes = {name: name for name in ("token-mean", "seq-mean-token-mean")}
    loss = ours.Clip(low=low, high=high, dual=given["dual_clip"], log_limit=20.0)
    return LossPart(
        loss=loss,
        reduction=reduction_of(modes, "OpenRLHF loss_agg_mode", given["loss_agg_mode"]),
        kl=_kl(given),
        entropy=_entropy(given),
    )


def estimator_of_kl(given: Given) -> Any:
    """The estimator by its name today, or by the flag that stood for k3 before there were names."""
    return "k3" if given["use_kl_estimator_k3"] else given["kl.estimator"]


def _entropy(given: Given) -> EntropyBonus | None:
    return bonus(given["entropy_coef"], reduction=Reduction(mode="token-mean"))


def _kl(given: Given) -> KlPenalty | None:
    if not given["use_loss"] or not given["init_coef"]:
        return None
    straight: dict[str, Any] = {}
    if given["unbiased_gradient"]:
        straight = {"gradient": "unbiased", "importance": "gradient", "importance_cap": 10.0}
    return KlPenalty(
        coefficient=given["init_coef"],
        estimator=estimator_of_kl(given),
        output_limit=10.0,  # k3's input is held at −10 below, where its value is beyond this limit anyway
        reduction=Reduction(mode="token-mean"),
        **straight,
    )
