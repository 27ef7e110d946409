"""Tinker: its policy losses, each a sum over tokens of a function of current/behavior."""

from __future__ import annotations

from typing import cast

from trimtab.config import losses as ours
from trimtab.config.losses import Objective, Reduction
from trimtab.dialects.dialect import Given
from trimtab.dialects.objectives import LossPart, refuse

PPO = (0.8, 1.2)
"""The bounds of ppo where none are written; those of the others are not documented."""
REFUSED = {
    "stable_reinforce": "it uses what the service records while sampling, and its formula is not published",
    "cross_entropy": "it is supervised and has no sampler",
    "custom": "it is a function of your own",
}


def loss_of(given: Given) -> LossPart:
    """The loss of that name, summed over the tokens of every request of a step."""
    name = given["loss_fn"]
    refuse(name in REFUSED, f"Tinker loss_fn {name}", REFUSED.get(name, ""))
    return LossPart(loss=_loss(given), reduction=Reduction(mode="token-sum"))


def _bounds(given: Given) -> tuple[float, float]:
    """The bounds of the ratio itself; refused where the loss has none that are known and none are written."""
    low, high = given["clip_low_threshold"], given["clip_high_threshold"]
    if given["loss_fn"] == "ppo":
        return PPO[0] if low is None else low, PPO[1] if high is None else high
    refuse(
        low is None or high is None,
        f"Tinker loss_fn {given['loss_fn']} without both clip_low_threshold and clip_high_threshold",
        "its defaults stand on the service and are not documented; of services with the same interface one takes 0 and 4, another 0 and "
        "5. Write both in loss_fn_config",
    )
    return cast("tuple[float, float]", (low, high))


def _loss(given: Given) -> Objective:
    name = given["loss_fn"]
    if name == "importance_sampling":
        return ours.ImportancePg()
    if name == "dro":
        refuse(
            given["beta"] is None,
            "Tinker loss_fn dro without beta",
            "its default stands on the service and is not documented. Write it in loss_fn_config",
        )
        return ours.Dro(beta=given["beta"])
    low, high = _bounds(given)
    if name == "cispo":
        return ours.Cispo(lower=low or None, upper=high)
    if name == "gspo":
        return ours.Gspo(low=round(1 - low, 12), high=round(high - 1, 12), level="sequence-token", scope="trained")
    return ours.Clip(low=round(1 - low, 12), high=round(high - 1, 12))
