"""SkyRL: `trainer.algorithm`, its losses, reductions and estimators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.config import advantages as adv
from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, text
from trimtab.dialects.objectives import ALL, RAW, Descent, Estimation, bonus, reduced, refuse, row

A = "trainer.algorithm"
KEYS = (
    Key(f"{A}.policy_loss_type", text, "regular", part="loss"),
    Key(f"{A}.loss_reduction", text, "token_mean", part="loss"),
    Key(f"{A}.eps_clip_low", number, 0.2, part="loss"),
    Key(f"{A}.eps_clip_high", number, 0.2, part="loss"),
    Key(f"{A}.clip_ratio_c", number, 3.0, part="loss"),
    Key(f"{A}.max_seq_len", number, part="loss"),
    Key(f"{A}.cispo.cispo_eps_clip_low", number, 0.0, part="loss"),
    Key(f"{A}.cispo.cispo_eps_clip_high", number, 5.0, part="loss"),
    Key(f"{A}.cispo.cispo_anchor", choice("old", "rollout"), "old", part="loss"),
    Key(f"{A}.sapo.tau_pos", number, 1.0, part="loss"),
    Key(f"{A}.sapo.tau_neg", number, 1.05, part="loss"),
    Key(f"{A}.dppo.dppo_type", choice("binary_tv", "binary_kl"), "binary_tv", part="loss"),
    Key(f"{A}.dppo.delta_low", number, 0.2, part="loss"),
    Key(f"{A}.dppo.delta_high", number, 0.2, part="loss"),
    Key(f"{A}.use_kl_loss", flag, True, part="loss"),
    Key(f"{A}.kl_loss_coef", number, 0.001, part="loss"),
    Key(f"{A}.kl_estimator_type", choice("k1", "abs", "k2", "k3"), "k3", part="loss"),
    Key(f"{A}.use_entropy_loss", flag, False, part="loss"),
    Key(f"{A}.entropy_loss_coef", number, 0.01, part="other"),
    Key(f"{A}.use_kl_in_reward", flag, False, part="advantage"),
    Key(f"{A}.zero_variance_filter", flag, False, part="advantage"),
    Key(f"{A}.advantage_estimator", text, "grpo", part="advantage"),
    Key(f"{A}.grpo_norm_by_std", flag, True, part="advantage"),
    Key(f"{A}.gamma", number, 1.0, part="advantage"),
    Key(f"{A}.lambd", number, 1.0, part="advantage"),
    Key(f"{A}.advantage_batch_normalize", flag, False, part="advantage"),
)
Table = dict[str, Callable[[Given], Any]]


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


MODES = {
    "token_mean": "token-mean",
    "token_mean_legacy": "prompt-mean",
    "sequence_mean": "seq-mean-token-mean",
    "seq_mean_token_sum_norm": "seq-mean-token-sum-norm",
    "prompt_mean": "prompt-mean",
}
ESTIMATORS: Table = {
    "grpo": lambda g: adv.Grpo(std=g["grpo_norm_by_std"], **RAW),
    "rloo": lambda _: adv.Rloo(**ALL),
    "gae": lambda g: adv.Gae(gamma=g["gamma"], lam=g["lambd"], **ALL),
    "reinforce++": lambda g: adv.ReinforcePlusPlus(gamma=g["gamma"], gaps="reset", **ALL),
    "maxrl": lambda _: adv.MaxRl(**ALL),
}


def descent(given: Given) -> Descent:
    """The registered loss; the reduction acts on the advantages of the whole mini-batch, which comes to the same."""
    name = given["policy_loss_type"]
    if name in BROKEN:
        return Descent()
    return Descent(
        loss=row(LOSSES, "SkyRL policy_loss_type", name, given),
        reduction=reduced(MODES, "SkyRL loss_reduction", given["loss_reduction"], given["max_seq_len"]),
        kl=_kl(given)
        if given.said("use_kl_loss", "kl_loss_coef", "kl_estimator_type") and given["use_kl_loss"]
        else None,
        entropy=bonus(given["entropy_loss_coef"] if given["use_entropy_loss"] else None),
        rows="all",
    )


def _kl(given: Given) -> KlPenalty:
    limits: dict[str, Any] = {"input_limit": 20.0, "output_limit": 10.0} if given["kl_estimator_type"] == "k3" else {}
    return KlPenalty(coefficient=given["kl_loss_coef"], estimator=given["kl_estimator_type"], **limits)


def estimation(given: Given) -> Estimation:
    """The registered estimator."""
    normalises = given["advantage_batch_normalize"]
    refuse(
        normalises and not given.documented,
        "SkyRL advantage_batch_normalize",
        "it subtracts a mean over padding. Use an estimator that normalises, or documented=True for a mean over tokens",
    )
    in_reward = given["use_kl_in_reward"] and given["kl_loss_coef"]
    return Estimation(
        advantage=row(ESTIMATORS, "SkyRL advantage_estimator", given["advantage_estimator"], given),
        advantage_norm=adv.Normalise(unbiased=False, eps=1e-8, eps_at="floor") if normalises else None,
        reward_kl=_kl(given) if in_reward else None,
    )


REMARKS = (
    Remark(
        "cispo_eps_clip_low",
        "defect",
        "With cispo_eps_clip_low {cispo_eps_clip_low} the lower bound is 1, so no token weighs less than 1; set it to 1.0 for an open "
        "lower side.",
        lambda given: given["policy_loss_type"] == "cispo" and given["cispo_eps_clip_low"] == 0,
    ),
    Remark(
        "policy_loss_type",
        "surprise",
        "rollout_is zeroes the factor outside the band, and with it the gradient, though its documentation says the gradient is "
        "unchanged.",
        lambda given: given["policy_loss_type"] == "rollout_is",
    ),
    Remark(
        "advantage_estimator",
        "note",
        "A group of one keeps its raw reward as advantage with grpo, and gets 0 with rloo; ours gives 0 by default.",
        lambda given: given["advantage_estimator"] == "grpo" and given.said("advantage_estimator"),
    ),
    Remark(
        "zero_variance_filter",
        "note",
        "Groups whose rewards agree leave the loss mask and its counts; pass their rows masked to get the same number.",
        lambda given: bool(given["zero_variance_filter"]),
    ),
    Remark(
        "use_kl_loss",
        "note",
        "Left out, a KL term of {kl_loss_coef} ({kl_estimator_type}) is paid; write use_kl_loss down to read it.",
        lambda given: (
            given.speaks_of("loss")
            and not given.said("use_kl_loss", "kl_loss_coef", "kl_estimator_type", "use_kl_in_reward")
        ),
    ),
    Remark(
        "cispo_anchor",
        "note",
        "cispo_anchor is younger than 0.3.0, which always divides by proximal.",
        lambda given: given.said("cispo_anchor"),
    ),
    Remark(
        "policy_loss_type",
        "note",
        "gspo keeps each token's own gradient under the sequence ratio and uses the configured loss_reduction; OpenRLHF and NeMo-RL "
        "differentiate the mean and force a sequence mean.",
        lambda given: given["policy_loss_type"] == "gspo",
    ),
    Remark(
        "loss_reduction",
        "surprise",
        "token_mean_legacy is the mean over micro-batches of their token means; read as prompt-mean: pass the index of the "
        "micro-batch as group, or use token_mean.",
        lambda given: given["loss_reduction"] == "token_mean_legacy",
    ),
    Remark(
        "loss_reduction",
        "note",
        "Rows without tokens count in sequence means; ours leave them out unless the denominator says otherwise.",
        lambda given: given["loss_reduction"] in ("sequence_mean", "seq_mean_token_sum_norm"),
    ),
    Remark(
        "advantage_estimator",
        "surprise",
        "reinforce++ starts anew after each observation, so tokens before it never see a later reward; verl carries it across.",
        lambda given: given["advantage_estimator"] == "reinforce++",
    ),
    Remark(
        "advantage_estimator",
        "surprise",
        "maxrl divides by the group's mean, so it flips signs where that is negative and explodes near 0; keep rewards positive. "
        "Ours gives 0 there.",
        lambda given: given["advantage_estimator"] == "maxrl",
    ),
    Remark(
        "advantage_estimator",
        "surprise",
        "gae reads critic values at masked positions, also between turns and past the end; zero them to get our numbers.",
        lambda given: given["advantage_estimator"] == "gae",
    ),
)
