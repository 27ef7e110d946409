"""Tinker: its policy losses, each a sum over tokens of a function of current/behavior."""

from __future__ import annotations

from typing import cast

from trimtab.config import losses as ours
from trimtab.config.losses import Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, refuse
from trimtab.dialects.tinker.keys import NEWEST
from trimtab.errors import ConfigError

PPO = (0.8, 1.2)
"""The bounds of ppo where none are written; those of the others are not documented."""
REFUSED = {
    "stable_reinforce": "it uses what the service records while sampling, and its formula is not published",
    "cross_entropy": "it is supervised and has no sampler",
    "custom": "it is a function of your own",
}


ASYNCHRONOUS = "stable_reinforce"
"""What an asynchronous run trains with where async_config says nothing else."""


def loss_of(given: Given) -> LossPart:
    """The loss of that name, summed over the tokens of every request of a step."""
    name = loss_name(given)
    if name == ASYNCHRONOUS and given["kl_penalty_coef"] and given["kl_discount_factor"] and given.since(NEWEST):
        raise ConfigError(
            f"Tinker kl_discount_factor {given['kl_discount_factor']:g} and a KL penalty exclude {name}, and the start fails. Set "
            "kl_discount_factor to 0, or name another loss."
        )
    by_default = " (the default of async_config, which loss_fn does not change)" if _is_overruled(given) else ""
    refuse(name in REFUSED, f"Tinker loss_fn {name}{by_default}", REFUSED.get(name, ""))
    return LossPart(loss=_loss(given), reduction=Reduction(mode="token-sum"))


def runs_ahead(given: Given) -> bool:
    """Whether answers are sampled while the model is trained."""
    return given["max_steps_off_policy"] is not None or given.has("async_loss_fn")


def loss_name(given: Given) -> str:
    """The loss a run trains with: that of async_config in an asynchronous one. A recipe's own loss_fn is handed to both."""
    name = given["loss_fn"]
    if not given.since(NEWEST) or not runs_ahead(given):
        return name
    in_section = given.has("async_loss_fn") or given.places.get("max_steps_off_policy") != "max_steps_off_policy"
    chosen = given["async_loss_fn"] or (name if given.has("loss_fn") and not in_section else ASYNCHRONOUS)
    if in_section and name not in ("importance_sampling", chosen):
        raise ConfigError(
            f"Tinker loss_fn {name} and async_config.loss_fn {chosen} exclude each other, and the start fails. Set the loss in "
            "async_config."
        )
    return chosen


def _is_overruled(given: Given) -> bool:
    """Whether an asynchronous run takes the default of async_config."""
    return (
        given.since(NEWEST)
        and runs_ahead(given)
        and not given.has("async_loss_fn")
        and loss_name(given) != given["loss_fn"]
    )


def _bounds(given: Given) -> tuple[float, float]:
    """The bounds of the ratio itself; refused where the loss has none that are known and none are written."""
    low, high = given["clip_low_threshold"], given["clip_high_threshold"]
    if loss_name(given) == "ppo":
        return PPO[0] if low is None else low, PPO[1] if high is None else high
    refuse(
        low is None or high is None,
        f"Tinker loss_fn {loss_name(given)} without both clip_low_threshold and clip_high_threshold",
        "its defaults stand on the service and are not documented; of services with the same interface one takes 0 and 4, another 0 and "
        "5. Write both in loss_fn_config",
    )
    return cast("tuple[float, float]", (low, high))


def _loss(given: Given) -> Objective:
    name = loss_name(given)
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
