"""SkyRL: `trainer.algorithm`, its losses, reductions and KL term."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, Table, bonus, reduction_of, row


def _clip(given: Given) -> dict[str, Any]:
    return {"low": given["eps_clip_low"], "high": given["eps_clip_high"]}


def _dppo(given: Given) -> Objective:
    kind = {"binary_tv": ours.DppoTv, "binary_kl": ours.DppoKl}[given["dppo_type"]]
    return kind(low=given["delta_low"], high=given["delta_high"], gradient="ratio", log_limit=20.0)


LOSSES: Table = {
    "regular": lambda g: ours.Clip(**_clip(g), log_limit=20.0),
    "dual_clip": lambda g: ours.Clip(**_clip(g), dual=g["clip_ratio_c"], log_limit=20.0),
    "gspo": lambda g: ours.Gspo(**_clip(g), level="sequence-token", log_upper=10.0, scope="trained"),
    "cispo": lambda g: ours.Cispo(
        lower=1 - g["cispo_eps_clip_low"], upper=1 + g["cispo_eps_clip_high"], log_limit=20.0
    ),
    "sapo": lambda g: ours.Sapo(tau_positive=g["tau_pos"], tau_negative=g["tau_neg"], log_limit=20.0),
    "importance_sampling": lambda _: ours.ImportancePg(),
    "rollout_is": lambda g: ours.Cispo(
        lower=1 - g["eps_clip_low"], upper=1 + g["eps_clip_high"], outside="zero", log_limit=20.0
    ),
    "dppo": _dppo,
}
BROKEN = ("clip_cov", "kl_cov")
TWO_POLICIES = ("rollout_is", "dppo")
"""Losses whose ratio divides by behavior."""


def two_policies(given: Given) -> bool:
    """Whether the loss divides by behavior."""
    name = given["policy_loss_type"]
    return name in TWO_POLICIES or (name == "cispo" and given["cispo_anchor"] == "rollout")


REDUCTIONS = {
    "token_mean": "token-mean",
    "token_mean_legacy": "prompt-mean",
    "sequence_mean": "seq-mean-token-mean",
    "seq_mean_token_sum_norm": "seq-mean-token-sum-norm",
    "prompt_mean": "prompt-mean",
}


def loss_of(given: Given) -> LossPart:
    """The registered loss; the reduction acts on the advantages of the whole mini-batch, which comes to the same."""
    name = given["policy_loss_type"]
    says_kl = given.has("use_kl_loss", "kl_loss_coef", "kl_estimator_type") and given["use_kl_loss"]
    kl = kl_of(given) if says_kl else None
    entropy = bonus(given["entropy_loss_coef"] if given["use_entropy_loss"] else None)
    if name in BROKEN:
        return LossPart(kl=kl, entropy=entropy)
    return LossPart(
        loss=row(LOSSES, "SkyRL policy_loss_type", name, given),
        reduction=reduction_of(REDUCTIONS, "SkyRL loss_reduction", given["loss_reduction"], given["max_seq_len"]),
        kl=kl,
        entropy=entropy,
        rows="all",
    )


def kl_of(given: Given) -> KlPenalty:
    """The KL term, and the one in the reward: only k3 is held."""
    limits: dict[str, Any] = {"input_limit": 20.0, "output_limit": 10.0} if given["kl_estimator_type"] == "k3" else {}
    return KlPenalty(coefficient=given["kl_loss_coef"], estimator=given["kl_estimator_type"], **limits)
