"""ms-swift: `loss_type` and the KL term; TRL's names, mostly with TRL's meaning."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, reduction_of, refuse
from trimtab.dialects.trl.loss import REDUCTIONS, clip_bounds

MODES = REDUCTIONS | {"fipo": "token-mean"}


def _surrogate(given: Given) -> Objective:
    """The surrogate of a loss_type."""
    name, level = given["loss_type"], given["importance_sampling_level"]
    refuse(name == "real", "ms-swift loss_type real", "its loss is one number per group, not one per token. Use grpo")
    refuse(
        name == "fipo" and level != "token",
        f"ms-swift loss_type fipo with importance_sampling_level {level}",
        "ours weighs the ratio of a token. Use token",
    )
    refuse(
        name == "sapo" and level == "sequence_token",
        "ms-swift loss_type sapo with importance_sampling_level sequence_token",
        "ours differentiates the mean. Use token or sequence",
    )
    unit: Any = "token" if level == "token" else "sequence"
    if name == "cispo":
        return ours.Cispo(upper=clip_bounds(given)["high"], level=unit)
    if name == "sapo":
        return ours.Sapo(tau_positive=given["tau_pos"], tau_negative=given["tau_neg"], level=unit)
    if name == "fipo":
        return _fipo(given)
    if level == "token":
        return ours.Clip(**clip_bounds(given), ratio_cap=given["delta"])
    kind: Any = {"sequence": "sequence", "sequence_token": "sequence-token"}[level]
    return ours.Gspo(**clip_bounds(given), level=kind, ratio_cap=given["delta"])


def _fipo(given: Given) -> Objective:
    """A fipo_clip_range of 0 or null leaves the weight open; without fipo_clip_high_only it may fall as far as it may rise."""
    reach = given["fipo_clip_range"]
    bounds: dict[str, Any] = {"lower": None, "upper": None}
    if reach:
        bounds = {"lower": 1.0 if given["fipo_clip_high_only"] else 1 - reach, "upper": 1 + reach}
    return ours.Fipo(
        **clip_bounds(given),
        **bounds,
        ratio_cap=given["delta"],
        half_life=given["fipo_decay_rate"],
        safety=given["fipo_safety_threshold"],
    )


def loss_of(given: Given) -> LossPart:
    """As in TRL, loss_type chooses surrogate and denominator."""
    quantile = given["top_entropy_quantile"]
    refuse(
        quantile not in (None, 1.0), "ms-swift top_entropy_quantile below 1", "the mask needs entropies. Leave it at 1"
    )
    refuse(given["chord_sft_dataset"], "ms-swift chord_sft_dataset", "a supervised loss is mixed in. Leave it out")
    refuse(given["sdar_loss_coef"], "ms-swift sdar_loss_coef", "it adds a loss to a teacher. Leave it 0")
    kl = None
    if given.has("beta") and given["beta"] and not pays_kl_in_reward(given):
        kl = KlPenalty(coefficient=given["beta"], estimator="k3", input_limit=20.0, output_limit=10.0, mask="kept")
    return LossPart(
        loss=_surrogate(given),
        reduction=reduction_of(
            REDUCTIONS | {"fipo": "token-mean"},
            "ms-swift loss_type",
            given["loss_type"],
            given["max_completion_length"],
        ),
        kl=kl,
        rows="all",
    )


def pays_kl_in_reward(given: Given) -> bool:
    """Left out, it follows the estimator."""
    return given["advantage_estimator"] != "grpo" if given["kl_in_reward"] is None else bool(given["kl_in_reward"])
