"""verl: `actor_rollout_ref.actor` and `algorithm.adv_estimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.config import advantages as adv
from trimtab.config import losses as ours
from trimtab.config.advantages import Normalise
from trimtab.config.losses import KlPenalty, Objective
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, numbers, raw, text
from trimtab.dialects.objectives import ALL, RAW, Descent, Estimation, bonus, reduced, refuse, row
from trimtab.errors import UnknownNameError, nearest

A, P = "actor_rollout_ref.actor", "actor_rollout_ref.actor.policy_loss"
KEYS = (
    Key(f"{P}.loss_mode", text, "vanilla", part="loss"),
    Key(f"{P}.clip_cov_ratio", number, 2e-4, part="loss"),
    Key(f"{P}.clip_cov_lb", number, 1.0, part="loss"),
    Key(f"{P}.clip_cov_ub", number, 5.0, part="loss"),
    Key(f"{P}.kl_cov_ratio", number, 2e-4, part="loss"),
    Key(f"{P}.ppo_kl_coef", number, 0.1, part="loss"),
    Key(f"{P}.dro_beta", number, part="loss"),
    Key(f"{A}.clip_ratio", number, 0.2, part="loss"),
    Key(f"{A}.clip_ratio_low", number, 0.2, part="loss", null="open"),
    Key(f"{A}.clip_ratio_high", number, 0.2, part="loss", null="open"),
    Key(f"{A}.clip_ratio_c", number, 3.0, part="loss"),
    Key(f"{A}.loss_agg_mode", text, "token-mean", part="loss"),
    Key(f"{A}.loss_scale_factor", number, part="loss"),
    Key(f"{A}.tau_pos", number, 1.0, part="loss"),
    Key(f"{A}.tau_neg", number, 1.05, part="loss"),
    Key(f"{A}.use_kl_loss", flag, False, part="loss"),
    Key(f"{A}.kl_loss_coef", number, 0.001, part="loss"),
    Key(f"{A}.kl_loss_type", text, "low_var_kl", part="loss"),
    Key(f"{A}.entropy_coeff", number, 0.0, part="loss"),
    Key("data.max_response_length", number, part="other"),
    Key("algorithm.adv_estimator", text, "gae", part="advantage"),
    Key("algorithm.gamma", number, 1.0, part="advantage"),
    Key("algorithm.lam", number, 1.0, part="advantage"),
    Key("algorithm.norm_adv_by_std_in_grpo", flag, True, part="advantage"),
    Key("algorithm.gdpo_reward_weights", numbers, part="advantage"),
    Key("algorithm.gdpo_reward_keys", raw, part="advantage"),
    Key("algorithm.use_kl_in_reward", flag, False, part="advantage"),
    Key("algorithm.kl_penalty", text, "kl", part="advantage"),
    Key("algorithm.kl_ctrl.kl_coef", number, 0.001, part="advantage"),
    Key("algorithm.kl_ctrl.type", choice("fixed", "adaptive"), "fixed", part="advantage", name="kl_ctrl.type"),
    Key("algorithm.use_pf_ppo", flag, False, part="advantage"),
)

Table = dict[str, Callable[[Given], Any]]


def _clip(given: Given) -> dict[str, Any]:
    """Both sides; clip_ratio stands in for one that is null, as it did before they had defaults."""
    sides = (given["clip_ratio_low"], given["clip_ratio_high"])
    low, high = (given["clip_ratio"] if side is None else side for side in sides)
    return {"low": low, "high": high}


def _cispo(given: Given) -> Objective:
    clip = _clip(given)
    return ours.Cispo(lower=1 - clip["low"], upper=1 + clip["high"], log_limit=20.0)


def _vanilla(given: Given) -> Objective:
    return ours.Clip(**_clip(given), dual=given["clip_ratio_c"], log_limit=20.0)


def _bypass(given: Given) -> Objective:
    return ours.Reinforce() if given["loss.loss_type"] == "reinforce" else _vanilla(given)


LOSSES: Table = {
    "vanilla": _vanilla,
    "gspo": lambda g: ours.Gspo(**_clip(g), level="sequence-token", log_upper=10.0),
    "sapo": lambda g: ours.Sapo(tau_positive=g["tau_pos"], tau_negative=g["tau_neg"], log_limit=20.0),
    "gpg": lambda _: ours.Reinforce(),
    "kl_cov": lambda g: ours.KlCov(fraction=g["kl_cov_ratio"], coefficient=g["ppo_kl_coef"]),
    "clip_cov": lambda g: ours.ClipCov(
        **_clip(g), fraction=g["clip_cov_ratio"], lower=g["clip_cov_lb"], upper=g["clip_cov_ub"]
    ),
    "geo_mean": lambda g: ours.Gmpo(**_clip(g), weights="geometric"),
    "cispo": _cispo,
    "dppo_tv": lambda g: ours.DppoTv(**_clip(g), ratio_cap=g["clip_ratio_c"], log_limit=20.0),
    "dppo_kl": lambda g: ours.DppoKl(**_clip(g), ratio_cap=g["clip_ratio_c"], log_limit=20.0),
    "dro": lambda g: ours.Dro(beta=g["dro_beta"]),
    "bypass_mode": _bypass,
}
FORCED = {"sapo": "seq-mean-token-mean", "geo_mean": "seq-mean-token-mean"}
"""Losses that choose their own reduction."""
MODES = {
    name: name
    for name in ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
}
KL = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}

ESTIMATORS: Table = {
    "gae": lambda g: adv.Gae(gamma=g["gamma"], lam=g["lam"], **ALL),
    "grpo": lambda g: adv.Grpo(std=g["norm_adv_by_std_in_grpo"], **RAW),
    "grpo_vectorized": lambda g: adv.Grpo(std=g["norm_adv_by_std_in_grpo"], **RAW),
    "rloo": lambda _: adv.Rloo(**RAW),
    "rloo_vectorized": lambda _: adv.Rloo(**ALL),
    "reinforce_plus_plus": lambda g: adv.ReinforcePlusPlus(gamma=g["gamma"], **ALL),
    "reinforce_plus_plus_baseline": lambda _: adv.ReinforcePlusPlus(group_mean=True, **RAW),
    "remax": lambda _: adv.ReMax(**ALL),
    "opo": lambda _: adv.Opo(**RAW),
    "gpg": lambda _: adv.Gpg(factor="nonzero", **RAW),
    "grpo_passk": lambda g: adv.PassK(std=g["norm_adv_by_std_in_grpo"], **ALL),
    "gdpo": lambda g: adv.Gdpo(
        weights=tuple(g["gdpo_reward_weights"] or [1.0] * len(g["gdpo_reward_keys"] or "1")),
        std=g["norm_adv_by_std_in_grpo"],
        normalise=Normalise(),
        **RAW,
    ),
}
UNSAID = dict.fromkeys(
    ("optimal_token_baseline", "tir_optimal_token_baseline"),
    "its baseline needs Σπ² of every token from the logits and the squared importance weights",
)
"""Estimators that nothing of ours says, and why."""


def descent(given: Given) -> Descent:
    """The registered loss, its aggregation and the KL loss."""
    name = given["loss_mode"]
    loss = row(LOSSES, "verl policy_loss.loss_mode", name, given)
    width = given["loss_scale_factor"] or given.width or given["max_response_length"]
    mode = FORCED.get(name) or str(given["loss_agg_mode"])
    return Descent(
        loss=loss,
        reduction=reduced(MODES, "verl loss_agg_mode", mode, width),
        kl=_kl(given) if given["use_kl_loss"] else None,
        entropy=bonus(given["entropy_coeff"], mask=_paid_on(given)),
        rows="all" if name == "geo_mean" else "with tokens",
    )


def _paid_on(given: Given) -> Any:
    """What rejection left, except in bypass mode, where the policy term alone sees the rejection."""
    return "trained" if given["loss_mode"] == "bypass_mode" else "kept"


def _kl(given: Given) -> KlPenalty:
    return KlPenalty(
        coefficient=given["kl_loss_coef"],
        gradient="unbiased" if given["kl_loss_type"].endswith("+") else "own",
        mask=_paid_on(given),
        **_estimated(given, "kl_loss_type"),
    )


def _estimated(given: Given, label: str) -> dict[str, Any]:
    """An estimator by name; only k3 is held."""
    named = given[label].rstrip("+")
    refuse(named == "full", f"verl {label} full", "it needs the whole distribution of each token. Use low_var_kl")
    if named not in KL:
        raise UnknownNameError(f"verl {label} {named!r} cannot be said. {nearest(named, KL)}")
    estimator = KL[named]
    held = {"input_limit": 20.0, "output_limit": 10.0} if estimator == "k3" else {}
    return {"estimator": estimator, **held}


def estimation(given: Given) -> Estimation:
    """The registered estimator, and the KL penalty in the reward."""
    name, penalty = given["adv_estimator"], given["kl_coef"] if given["use_kl_in_reward"] else 0.0
    refuse(name in UNSAID, f"verl adv_estimator {name}", UNSAID.get(name, ""))
    refuse(given["use_pf_ppo"], "verl use_pf_ppo", "rows are drawn again by their reward. Switch it off")
    return Estimation(
        advantage=row(ESTIMATORS, "verl adv_estimator", name, given),
        reward_kl=KlPenalty(coefficient=penalty, **_estimated(given, "kl_penalty")) if penalty else None,
    )


REMARKS = (
    Remark(
        "clip_ratio_c",
        "surprise",
        "{loss_mode} caps its ratio at clip_ratio_c, {clip_ratio_c} by default: the 20 in its code is never reached.",
        lambda given: given["loss_mode"] in ("dppo_tv", "dppo_kl") and not given.said("clip_ratio_c"),
    ),
    Remark(
        "kl_ctrl.type",
        "note",
        "An adaptive controller moves the coefficient with the measured KL; kl_coef is only where it starts.",
        lambda given: bool(given["use_kl_in_reward"]) and given["kl_ctrl.type"] == "adaptive",
    ),
    Remark(
        "clip_ratio",
        "surprise",
        "clip_ratio is not read: clip_ratio_low and clip_ratio_high have defaults of their own (0.2); set those.",
        lambda given: given.said("clip_ratio") and not (given.said("clip_ratio_low") and given.said("clip_ratio_high")),
    ),
    Remark(
        "clip_ratio_c",
        "note",
        "The dual clip is always on, at {clip_ratio_c}; most frameworks leave it out by default.",
        lambda given: given.speaks_of("loss") and given["loss_mode"] == "vanilla",
    ),
    Remark(
        "loss_mode",
        "surprise",
        "geo_mean takes a plain mean over the rows of the micro-batch, so its gradient grows with the number of micro-batches.",
        lambda given: given["loss_mode"] == "geo_mean",
    ),
    Remark(
        "loss_agg_mode",
        "surprise",
        "{loss_mode} always averages per sequence first, whatever loss_agg_mode says.",
        lambda given: (
            given["loss_mode"] in FORCED
            and given.said("loss_agg_mode")
            and given["loss_agg_mode"] != "seq-mean-token-mean"
        ),
    ),
    Remark(
        "loss_scale_factor",
        "surprise",
        "Without loss_scale_factor the sum is divided by the width of the micro-batch, so the step depends on the longest answer "
        "in it; set it to the longest answer allowed.",
        lambda given: given["loss_agg_mode"] == "seq-mean-token-sum-norm" and not given.set("loss_scale_factor"),
    ),
    Remark(
        "loss_mode",
        "note",
        "GSPO here keeps each token's own gradient under the sequence ratio and uses the configured loss_agg_mode; OpenRLHF and "
        "NeMo-RL differentiate the mean and force a sequence mean.",
        lambda given: given["loss_mode"] == "gspo",
    ),
    Remark(
        "adv_estimator",
        "note",
        "A group of one keeps its raw reward as advantage; ours gives 0 by default, ms-swift and NeMo-RL too.",
        lambda given: (
            given.said("adv_estimator") and given["adv_estimator"] in ("grpo", "rloo", "opo", "gpg", "grpo_vectorized")
        ),
    ),
    Remark(
        "adv_estimator",
        "note",
        "The reward of a row is the sum over all its tokens, masked or not.",
        lambda given: (
            given.said("adv_estimator") and given["adv_estimator"] not in ("gae", "reinforce_plus_plus", "remax")
        ),
    ),
)
