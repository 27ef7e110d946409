"""OpenRLHF: `--actor.*` losses and `--algo.advantage.estimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Gae, Grpo, Normalise, ReinforcePlusPlus, Rloo, Shaping
from trimtab.config.losses import KlPenalty, Reduction
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, numbers, text
from trimtab.dialects.objectives.kinds import ALL, Descent, Estimation, reduced, row

V = "algo.advantage"
KEYS = (
    Key("actor.policy_loss_type", choice("ppo", "gspo"), "ppo", part="loss"),
    Key("actor.eps_clip", number, 0.2, part="loss"),
    Key("actor.eps_clip_low_high", numbers, part="loss"),
    Key("actor.dual_clip", number, part="loss"),
    Key("actor.loss_agg_mode", choice("token-mean", "seq-mean-token-mean"), "token-mean", part="loss"),
    Key(f"{V}.estimator", text, "gae", part="advantage", also=("advantage_estimator",)),
    Key(f"{V}.gamma", number, 1.0, part="advantage"),
    Key(f"{V}.lambd", number, 1.0, part="advantage"),
    Key(f"{V}.no_std_norm", flag, False, part="advantage"),
    Key("algo.kl.init_coef", number, 0.01, part="advantage"),
    Key("algo.kl.use_loss", flag, False, part="other"),
    Key("algo.kl.estimator", choice("k1", "k2", "k3"), "k1", part="other", name="kl.estimator"),
    Key("reward.clip_range", numbers, (-10.0, 10.0), part="advantage"),
    Key("rollout.n_samples_per_prompt", number, 1.0, part="other"),
)
BIASED = Normalise(unbiased=False, eps=1e-8, eps_at="floor")
Table = dict[str, Callable[[Given], Any]]
ESTIMATORS: Table = {
    "gae": lambda g: Gae(
        gamma=g["gamma"],
        lam=g["lambd"],
        gaps="step",
        normalise=BIASED.but(std=None if g["no_std_norm"] else "batch"),
        **ALL,
    ),
    "reinforce": lambda g: ReinforcePlusPlus(gamma=g["gamma"], gaps="step", normalise=_whitened(g), **ALL),
    "reinforce_baseline": lambda g: ReinforcePlusPlus(
        gamma=g["gamma"], group_mean=True, gaps="step", normalise=_whitened(g), **ALL
    ),
    "flash_reinforce": lambda g: ReinforcePlusPlus(gamma=g["gamma"], gaps="step", normalise=None, **ALL),
    "rloo": lambda _: Rloo(**ALL),
    "group_norm": lambda _: Grpo(eps=1e-9, **ALL),
    "dr_grpo": lambda _: Grpo(std=False, **ALL),
}
SHAPING = {"flash_reinforce": (Shaping(normalise=Normalise(mean="batch", std=None)),)}


def _whitened(given: Given) -> Normalise:
    return BIASED.but(std=None) if given["no_std_norm"] else BIASED


def descent(given: Given) -> Descent:
    """PPO with the configured mean; GSPO with a sequence mean, always."""
    low, high = given["eps_clip_low_high"] or (given["eps_clip"], given["eps_clip"])
    if given["policy_loss_type"] == "gspo":
        return Descent(
            loss=ours.Gspo(low=low, high=high), reduction=Reduction(mode="seq-mean-token-mean"), kl=_kl(given)
        )
    modes = {name: name for name in ("token-mean", "seq-mean-token-mean")}
    loss = ours.Clip(low=low, high=high, dual=given["dual_clip"], log_limit=20.0)
    return Descent(loss=loss, reduction=reduced(modes, "OpenRLHF loss_agg_mode", given["loss_agg_mode"]), kl=_kl(given))


def _kl(given: Given) -> KlPenalty | None:
    if not given["use_loss"] or not given["init_coef"]:
        return None
    token_mean = Reduction(mode="token-mean")
    return KlPenalty(
        coefficient=given["init_coef"], estimator=given["kl.estimator"], output_limit=10.0, reduction=token_mean
    )


def estimation(given: Given) -> Estimation:
    """The estimator, what it subtracts first, and the KL penalty in the reward."""
    name, coefficient = given["estimator"], given["init_coef"]
    in_reward = coefficient and not given["use_loss"] and given.said("init_coef")
    return Estimation(
        advantage=row(ESTIMATORS, "OpenRLHF algo.advantage.estimator", name, given),
        shaping=SHAPING.get(name, ()),
        reward_kl=KlPenalty(coefficient=coefficient, estimator=given["kl.estimator"], output_limit=10.0)
        if in_reward
        else None,
    )


REMARKS = (
    Remark(
        "loss_agg_mode",
        "surprise",
        "gspo forces a mean per sequence; loss_agg_mode {loss_agg_mode} is ignored.",
        lambda given: given["policy_loss_type"] == "gspo" and given.said("loss_agg_mode"),
    ),
    Remark(
        "clip_range",
        "note",
        "Rewards are clipped to {clip_range} after the baseline is subtracted; ours does not clip there, which matters only beyond.",
        lambda given: given.speaks_of("advantage"),
    ),
    Remark(
        "use_loss",
        "surprise",
        "The KL loss is a token mean whatever loss_agg_mode says.",
        lambda given: bool(given["use_loss"]) and given["loss_agg_mode"] != "token-mean",
    ),
    Remark(
        "estimator",
        "note",
        "Whitening divides by the biased variance, never below 1e-8.",
        lambda given: given["estimator"] in ("gae", "reinforce", "reinforce_baseline") and given.said("estimator"),
    ),
)
