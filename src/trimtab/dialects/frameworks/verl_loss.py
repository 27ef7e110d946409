"""verl: `actor_rollout_ref.actor`, its losses, reductions, KL and entropy terms; `algorithm.adv_estimator`; `distillation`."""

from __future__ import annotations

from typing import Any

from trimtab.config import advantages as adv
from trimtab.config import losses as ours
from trimtab.config.advantages import Distillation, Normalise
from trimtab.config.losses import Clip, KlPenalty, Objective
from trimtab.dialects.framework import Given
from trimtab.dialects.frameworks.verl_correction import BYPASS, FORCED, SECTION, bypasses, is_threshold
from trimtab.dialects.parts import ALL, RAW, AdvantagePart, LossPart, Table, bonus, reduction_of, refuse, row
from trimtab.errors import UnknownNameError, nearest


def _clip(given: Given) -> dict[str, Any]:
    """Both sides; clip_ratio stands in for one that is null, as it did before they had defaults."""
    sides = (given["clip_ratio_low"], given["clip_ratio_high"])
    low, high = (given["clip_ratio"] if side is None else side for side in sides)
    return {"low": low, "high": high}


def _cispo(given: Given) -> Objective:
    """clip_ratio_low of 1 or more leaves the lower side open: a ratio is never below 0."""
    clip = _clip(given)
    lower = 1 - clip["low"] if clip["low"] < 1 else None
    return ours.Cispo(lower=lower, upper=1 + clip["high"], log_limit=20.0)


def _vanilla(given: Given) -> Objective:
    return ours.Clip(**_clip(given), dual=given["clip_ratio_c"], log_limit=20.0)


def _bypass(given: Given, place: str = "loss.") -> Objective:
    """PPO's clip or REINFORCE; against behavior where the trainer hands the sampler's log-probs on, else against proximal."""
    if given[f"{place}loss_type"] != "reinforce":
        return _vanilla(given)
    return ours.Reinforce() if bypasses(given) else _by_proximal(given)


def _by_proximal(given: Given) -> Objective:
    """REINFORCE with weights current/proximal: CISPO."""
    level = given["loss.rollout_is"]
    if level is None:
        return ours.Reinforce()
    words = f"verl loss_mode {BYPASS} without {SECTION}.bypass_mode, with loss_type reinforce and"
    remedy = f"Set {SECTION}.bypass_mode=true"
    refuse(level != "token", f"{words} rollout_is {level}", f"it weighs by a product of current/proximal. {remedy}")
    refuse(
        given["loss.rollout_is_batch_normalize"],
        f"{words} rollout_is_batch_normalize",
        f"the weights current/proximal are divided by their mean. {remedy}",
    )
    lower, upper = is_threshold(given["loss.rollout_is_threshold"])
    return ours.Cispo(lower=lower, upper=upper, outside="clamp" if lower is None else "zero", log_limit=20.0)


def _bapo(given: Given) -> Objective:
    """Of the authors' recipe (WooooDyy/BAPO): bounds on the ratio itself, each where the clip of the actor would be unless said."""
    clip, found = _clip(given), {"target": given["adv_ratio_target"], "dual": given["clip_ratio_c"]}
    for side, usual in (("lower", 1 - clip["low"]), ("upper", 1 + clip["high"])):
        first = usual if given[f"ratio_{side}_start"] is None else given[f"ratio_{side}_start"]
        last = first if given[f"ratio_{side}_max"] is None else given[f"ratio_{side}_max"]
        found |= {side: first, f"{side}_max": last, f"{side}_step": given[f"ratio_{side}_step"]}
    return ours.Bapo(**found)


RECIPE = "bapo"
"""A loss that a recipe registers, not verl itself: read, never written."""
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
    RECIPE: _bapo,
    BYPASS: _bypass,
}
REDUCTIONS = {
    name: name
    for name in ("token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")
}
KL = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}


def loss_of(given: Given) -> LossPart:
    """The registered loss, its aggregation and the KL loss."""
    name = given["loss_mode"]
    loss = row(LOSSES, "verl policy_loss.loss_mode", name, given)
    if given.documented and name == "vanilla" and bypasses(given):
        loss = _bypass(given, "")
    refuse(
        not given["use_token_level_loss"],
        "verl use_token_level_loss false",
        "loss_agg_mode took its place before 0.3. Write that, as seq-mean-token-mean",
    )
    refuse(
        given["use_gpg_loss"],
        "verl use_gpg_loss",
        "policy_loss.loss_mode took its place. Write loss_mode gpg",
    )
    teaches, entropy = follows_teacher(given), given["entropy_coeff"]
    mode = FORCED.get(name) or str(given["loss_agg_mode"])
    width = given["loss_scale_factor"] or given.width if mode.endswith("-norm") else None
    if mode.endswith("-norm") and width is None:
        width = given["max_response_length"]
    reduction = reduction_of(REDUCTIONS, "verl loss_agg_mode", mode, width)
    if teaches:
        return LossPart(loss=teacher_loss(given), reduction=reduction)
    return LossPart(
        loss=loss,
        reduction=reduction,
        **_kl_part(given),
        entropy=bonus(entropy, mask=_paid_on(given)) if entropy else None,
        rows="all" if name == "geo_mean" else "with tokens",
    )


def _paid_on(given: Given) -> Any:
    """What rejection before the step left; rejection inside the loss is seen by the policy term alone."""
    if given["loss_mode"] != BYPASS:
        return "kept"
    before = bool(given["rollout_rs"]) and not bypasses(given)
    refuse(
        before and given["loss.rollout_rs"],
        f"verl loss_mode {BYPASS} without {SECTION}.bypass_mode, with rollout_rs in both sections beside a KL or entropy term",
        f"the term sees one rejection and not the other. Set {SECTION}.bypass_mode=true",
    )
    return "kept" if before else "trained"


def _kl_part(given: Given) -> dict[str, Any]:
    """The KL to the reference, or to a teacher."""
    if not given["distillation.enabled"]:
        return {"kl": _kl(given) if given["use_kl_loss"] else None}
    refuse(given["use_kl_loss"], "verl distillation with use_kl_loss", "ours pays one KL in the loss. Leave one out")
    bound, held = given["teacher.loss_max_clamp"], kl_estimator(given, "teacher.loss_mode")
    limits = [each for each in (bound, held.get("output_limit")) if each is not None]
    more: dict[str, Any] = {**held, "output_limit": min(limits) if limits else None}
    return {
        "kl": KlPenalty(
            coefficient=given["teacher.distillation_loss_coef"],
            gradient="unbiased" if given["teacher.loss_mode"].endswith("+") else "own",
            mask=_paid_on(given),
            **more,
        ),
        "kl_to": "teacher",
    }


def _kl(given: Given) -> KlPenalty:
    return KlPenalty(
        coefficient=given["kl_loss_coef"],
        gradient="unbiased" if given["kl_loss_type"].endswith("+") else "own",
        mask=_paid_on(given),
        **kl_estimator(given, "kl_loss_type"),
    )


def kl_estimator(given: Given, label: str) -> dict[str, Any]:
    """An estimator by name; only k3 is held."""
    named = given[label].rstrip("+")
    refuse(named == "full", f"verl {label} full", "it needs the whole distribution of each token. Use low_var_kl")
    if named not in KL:
        raise UnknownNameError(f"verl {label} {named!r} is not supported. {nearest(named, KL)}")
    estimator = KL[named]
    held = {"input_limit": 20.0, "output_limit": 10.0} if estimator == "k3" else {}
    return {"estimator": estimator, **held}


# ── a teacher ─────────────────────────────────────────────────────────────────────────────────────────────────────────

OPTION = "verl distillation"


def follows_teacher(given: Given) -> bool:
    """Whether a teacher's log-ratio takes the place of rewards; other forms of a teacher that ours cannot say are refused."""
    if not given["distillation.enabled"]:
        return False
    refuse(
        str(given["teacher.loss_mode"]).endswith("_topk"),
        f"{OPTION} loss_mode {given['teacher.loss_mode']}",
        "it compares the likeliest ids of the teacher, not the sampled one. Use k1 with use_policy_gradient",
    )
    if not given["teacher.use_policy_gradient"]:
        refuse(
            not given["teacher.use_task_rewards"],
            f"{OPTION} without use_task_rewards and use_policy_gradient",
            "a KL to the teacher is all that is descended. Set use_policy_gradient with loss_mode k1",
        )
        return False
    refuse(
        given["teacher.use_task_rewards"],
        f"{OPTION} use_policy_gradient with use_task_rewards",
        "two policy losses are added, each clipped by itself. Set use_task_rewards to false",
    )
    refuse(
        given["teacher.loss_mode"] not in ("k1", "kl"),
        f"{OPTION} use_policy_gradient with loss_mode {given['teacher.loss_mode']}",
        "what is gained is not the log-ratio, and its gradient not that of the KL. Use k1",
    )
    return True


def teacher_loss(given: Given) -> Clip:
    """PPO's clip with bounds of its own; the dual one is always 3."""
    sides = (given["teacher.clip_ratio_low"], given["teacher.clip_ratio_high"])
    low, high = (given["teacher.clip_ratio"] if side is None else side for side in sides)
    return Clip(low=low, high=high, dual=3.0, log_limit=20.0)


def teacher_advantage(given: Given) -> Distillation:
    """−clamp(log current − log teacher), worked out in every forward pass."""
    return Distillation(student="current", limit=given["teacher.loss_max_clamp"], **ALL)


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    "optimal_token_baseline": lambda _: adv.OptimalToken(**RAW),
    "tir_optimal_token_baseline": lambda _: adv.OptimalToken(**RAW),
    "gdpo": lambda g: adv.Gdpo(
        weights=tuple(g["gdpo_reward_weights"] or [1.0] * len(g["gdpo_reward_keys"] or "1")),
        std=g["norm_adv_by_std_in_grpo"],
        normalise=Normalise(),
        **RAW,
    ),
}


def advantage_of(given: Given) -> AdvantagePart:
    """The registered estimator, and the KL penalty in the reward."""
    if follows_teacher(given):
        return AdvantagePart(advantage=teacher_advantage(given))
    name, penalty = given["adv_estimator"], given["kl_coef"] if given["use_kl_in_reward"] else 0.0
    refuse(given["use_pf_ppo"], "verl use_pf_ppo", "rows are drawn again by their reward. Switch it off")
    return AdvantagePart(
        advantage=row(ESTIMATORS, "verl adv_estimator", name, given),
        reward_kl=KlPenalty(coefficient=penalty, **kl_estimator(given, "kl_penalty")) if penalty else None,
    )
