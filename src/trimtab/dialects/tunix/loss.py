"""Tunix: PPO's clip on tokens or on the mean of a sequence, five reductions, and KL to the reference."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, bonus, reduction_of, refuse
from trimtab.dialects.tunix.correction import SAFETY
from trimtab.dialects.tunix.keys import ESTIMATORS, REDUCTIONS, is_agentic, is_ppo

LOG_UPPER = 10.0


def loss_of(given: Given) -> LossPart:
    """GRPO, GSPO-token or PPO; the sampler's weight multiplies each token after the clip, and the denominators stay."""
    own = given["policy_loss_fn"]
    refuse(own not in ("grpo", "ppo"), f"Tunix policy_loss_fn {own}", "it is a function that you registered")
    low, high = _bounds(given)
    if is_ppo(given):
        loss = ours.Clip(low=low, high=high, dual=given["epsilon_c"])
        return LossPart(loss=loss, reduction=Reduction(mode="token-mean"), entropy=bonus(given["entropy_coef"]))
    reduction = reduction_of(REDUCTIONS, "Tunix loss_agg_mode", given["loss_agg_mode"], _width(given))
    return LossPart(loss=_loss(given, low, high), reduction=reduction, kl=reference_kl(given, "kl_loss_mode"))


def _bounds(given: Given) -> tuple[float, float]:
    """How far the ratio may fall and rise; a bound of 0 counts as not written."""
    width = given["epsilon"]
    low = (given["epsilon_low"] or width) if is_ppo(given) else width
    high = given["epsilon_high"]
    return low, width if high is None or (is_ppo(given) and not high) else high


def reference_kl(given: Given, mode: str) -> KlPenalty | None:
    """beta times the estimate, held within ±kl_clamp_value."""
    if not given["beta"]:
        return None
    estimator: Any = ESTIMATORS[given[mode]]
    return KlPenalty(coefficient=given["beta"], estimator=estimator, output_limit=given["kl_clamp_value"])


def _loss(given: Given, low: float, high: float) -> Objective:
    if given["loss_algo"] == "gspo-token":
        shape: dict[str, Any] = {"level": "sequence-token", "scope": "trained", "log_upper": LOG_UPPER}
        return ours.Gspo(low=low, high=high, dual=given["epsilon_c"], **shape)
    return ours.Clip(low=low, high=high, dual=given["epsilon_c"], log_limit=SAFETY)


def _width(given: Given) -> float | None:
    """What sequence-mean-token-scale divides by: the width to which answers are padded."""
    own = given["max_response_length"] if is_agentic(given) else None
    return given.width or own or given["total_generation_steps"]
