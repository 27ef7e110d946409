"""TRL: GRPOConfig's `loss_type` and KL term."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, bonus, reduction_of
from trimtab.dialects.trl.keys import is_rloo, refuse_absent
from trimtab.errors import ConfigError

REDUCTIONS = {
    "grpo": "seq-mean-token-mean",
    "sapo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
    "luspo": "seq-mean-token-sum",
} | dict.fromkeys(("bnpo", "dapo", "cispo", "vespo"), "token-mean")


def clip_bounds(given: Given) -> dict[str, Any]:
    """epsilon below, epsilon_high above, the first for both where the second is left out."""
    high = given["epsilon"] if given["epsilon_high"] is None else given["epsilon_high"]
    return {"low": given["epsilon"], "high": high}


def caps_below_the_clip(given: Given) -> bool:
    """Whether delta bounds the ratio below where the clip does; above that the two are a dual clip."""
    unclipped = given["loss_type"] in ("cispo", "sapo", "vespo", "real")
    return bool(given["delta"]) and not unclipped and given["delta"] < 1 + clip_bounds(given)["high"]


def _surrogate(given: Given) -> Objective:
    """The surrogate of a loss_type."""
    name, level = given["loss_type"], given["importance_sampling_level"]
    if name == "cispo":
        return ours.Cispo(upper=clip_bounds(given)["high"], level=level)  # it bounds the ratio itself
    if name == "sapo":
        return ours.Sapo(
            tau_positive=given["sapo_temperature_pos"], tau_negative=given["sapo_temperature_neg"], level=level
        )
    if name == "vespo":
        sides = {"pos": "positive", "neg": "negative"}
        fields = {f"{k}_{side}": given[f"vespo_{k}_{sign}"] for k in ("k", "lambda") for sign, side in sides.items()}
        return ours.Vespo(**fields, weights="inside")
    if level == "token":
        return ours.Clip(**clip_bounds(given), ratio_cap=given["delta"])
    return (
        ours.Luspo(**clip_bounds(given))
        if name == "luspo"
        else ours.Gspo(**clip_bounds(given), ratio_cap=given["delta"])
    )


def loss_of(given: Given) -> LossPart:
    """loss_type chooses surrogate and denominator at once; the entropy bonus is a token mean under each of them."""
    refuse_absent(given, "loss")
    if is_rloo(given):
        raise ConfigError(
            "TRL RLOOConfig's loss cannot be said: it clips the product of the ratios over an answer. Use GRPOConfig with "
            "importance_sampling_level sequence, which clips the geometric mean."
        )
    if given["top_entropy_quantile"] not in (None, 1.0):
        raise ConfigError("TRL top_entropy_quantile below 1 cannot be said: the mask needs entropies. Leave it at 1.")
    name, level = given["loss_type"], given["importance_sampling_level"]
    mode = "grpo" if name == "luspo" and level == "sequence" else name  # our Luspo brings the length itself
    return LossPart(
        loss=_surrogate(given),
        reduction=reduction_of(REDUCTIONS, "TRL loss_type", mode, given["max_completion_length"]),
        kl=_kl(given) if given["beta"] else None,
        entropy=bonus(given["entropy_coef"], reduction=Reduction(mode="token-mean")),
        rows="all",
    )


def _kl(given: Given) -> KlPenalty:
    full = bool(given["use_bias_correction_kl"])
    if full and given["importance_sampling_level"] == "sequence":
        raise ConfigError(
            "TRL beta with importance_sampling_level sequence and use_bias_correction_kl cannot be said: its KL is weighed by the ratio "
            "of the sequence. Switch the latter off."
        )
    return KlPenalty(coefficient=given["beta"], estimator="k3", importance="full" if full else "none")
