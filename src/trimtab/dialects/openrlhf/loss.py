"""OpenRLHF: `--actor.*` losses and `--algo.advantage.estimator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Gae, Grpo, Normalise, Overlong, ReinforcePlusPlus, Rloo, Shaping
from trimtab.config.losses import EntropyBonus, KlPenalty, Reduction
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, numbers, text, whole
from trimtab.dialects.objectives import ALL, Descent, Estimation, bonus, reduced, refuse, row
from trimtab.errors import ConfigError

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
    Key(f"{V}.no_std_norm", flag, False, part="advantage", also=("no_advantage_std_norm",)),
    Key("algo.kl.init_coef", number, 0.01, part="advantage", also=("init_kl_coef",)),
    Key("algo.kl.target", number, part="other", name="kl.target", also=("kl_target",)),
    Key("algo.kl.use_loss", flag, False, part="other", also=("use_kl_loss",)),
    Key("algo.kl.unbiased_gradient", flag, False, part="other"),
    Key("algo.kl.estimator", choice("k1", "k2", "k3"), "k1", part="other", name="kl.estimator", also=("kl_estimator",)),
    Key("actor.entropy_coef", number, part="loss", also=("entropy_loss_coef",)),
    Key("reward.clip_range", numbers, (-10.0, 10.0), part="advantage", also=("reward_clip_range",)),
    Key("reward.overlong_buffer_len", whole, part="advantage"),
    Key("reward.overlong_penalty_factor", number, 1.0, part="advantage"),
    Key("reward.stop_properly_penalty_coef", number, part="advantage"),
    Key("rollout.max_new_tokens", whole, part="other", also=("generate_max_len",)),
    Key("data.max_len", whole, 2048, part="other"),
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
        group_mean=True, gaps="step", normalise=_whitened(g), **_clipped(g), **ALL
    ),
    "flash_reinforce": lambda g: ReinforcePlusPlus(gaps="step", normalise=None, **_clipped(g), **ALL),
    "rloo": lambda g: Rloo(**_clipped(g), **ALL),
    "group_norm": lambda g: Grpo(eps=1e-9, **_clipped(g), **ALL),
    "dr_grpo": lambda g: Grpo(std=False, **_clipped(g), **ALL),
}
"""gamma is read by gae and reinforce only; rewards are clipped after the baseline, before they are summed."""


def _clipped(given: Given) -> dict[str, float]:
    lower, upper = _pair(given, "clip_range")
    return {"lower": lower, "upper": upper}


def _pair(given: Given, label: str) -> tuple[float, float]:
    if len(given[label]) != 2:
        raise ConfigError(f"OpenRLHF {given.path(label)} needs two numbers, got {list(given[label])}.")
    first, second = given[label]
    return first, second


def _shaped(given: Given, name: str) -> Shaping:
    """Length first; then the batch's mean for flash_reinforce; where no baseline follows, the clip."""
    refuse(
        given["stop_properly_penalty_coef"] is not None,
        "OpenRLHF reward.stop_properly_penalty_coef",
        "it scales or replaces the reward of truncated answers. Shape them yourself",
    )
    fields: dict[str, Any] = {}
    if given["overlong_buffer_len"]:
        longest = given["max_new_tokens"] or given["max_len"]
        factor = given["overlong_penalty_factor"]
        fields["overlong"] = Overlong(max_length=longest, buffer=given["overlong_buffer_len"], factor=factor)
    if name == "flash_reinforce":
        fields["normalise"] = Normalise(mean="batch", std=None)
    if name in ("gae", "reinforce"):
        fields |= _clipped(given)
    return Shaping(**fields)


def _whitened(given: Given) -> Normalise:
    return BIASED.but(std=None) if given["no_std_norm"] else BIASED


def descent(given: Given) -> Descent:
    """PPO with the configured mean; GSPO with a sequence mean, always."""
    both = given["eps_clip_low_high"] is not None
    low, high = _pair(given, "eps_clip_low_high") if both else (given["eps_clip"], given["eps_clip"])
    if given["policy_loss_type"] == "gspo":
        return Descent(
            loss=ours.Gspo(low=low, high=high, dual=given["dual_clip"]),
            reduction=Reduction(mode="seq-mean-token-mean"),
            kl=_kl(given),
            entropy=_entropy(given),
        )
    modes = {name: name for name in ("token-mean", "seq-mean-token-mean")}
    loss = ours.Clip(low=low, high=high, dual=given["dual_clip"], log_limit=20.0)
    return Descent(
        loss=loss,
        reduction=reduced(modes, "OpenRLHF loss_agg_mode", given["loss_agg_mode"]),
        kl=_kl(given),
        entropy=_entropy(given),
    )


def _entropy(given: Given) -> EntropyBonus | None:
    return bonus(given["entropy_coef"], reduction=Reduction(mode="token-mean"))


def _kl(given: Given) -> KlPenalty | None:
    if not given["use_loss"] or not given["init_coef"]:
        return None
    straight: dict[str, Any] = {}
    if given["unbiased_gradient"]:
        straight = {"gradient": "unbiased", "importance": "gradient", "importance_cap": 10.0}
    return KlPenalty(
        coefficient=given["init_coef"],
        estimator=given["kl.estimator"],
        output_limit=10.0,  # k3's input is held at −10 below, where its value is beyond this limit anyway
        reduction=Reduction(mode="token-mean"),
        **straight,
    )


def estimation(given: Given) -> Estimation:
    """The estimator, what it subtracts first, and the KL penalty in the reward."""
    name, coefficient = given["estimator"], given["init_coef"]
    in_reward = coefficient and not given["use_loss"] and given.said("init_coef")
    alone = given.said("n_samples_per_prompt") and given["n_samples_per_prompt"] < 2
    if alone and name in ("rloo", "reinforce_baseline", "group_norm", "dr_grpo"):
        raise ConfigError(
            f"OpenRLHF estimator {name} needs n_samples_per_prompt above 1: a group of one has no others."
        )
    shaping = _shaped(given, name)
    return Estimation(
        advantage=row(ESTIMATORS, "OpenRLHF algo.advantage.estimator", name, given),
        shaping=() if shaping == Shaping() else (shaping,),
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
        "Rewards are clipped to {clip_range} after the baseline is subtracted and divided by, not before.",
        lambda given: (
            given.speaks_of("advantage") and given.said("clip_range") and given["estimator"] not in ("gae", "reinforce")
        ),
    ),
    Remark(
        "gamma",
        "surprise",
        "gamma {gamma} is set to 1 for {estimator}; only gae and reinforce read it.",
        lambda given: given["gamma"] != 1 and given["estimator"] not in ("gae", "reinforce"),
    ),
    Remark(
        "init_coef",
        "note",
        "Left out, a KL penalty of {init_coef} is paid in the reward; write --algo.kl.init_coef down to read it.",
        lambda given: given.speaks_of("advantage") and not given.said("init_coef") and not given["use_loss"],
    ),
    Remark(
        "kl.target",
        "note",
        "With a target the coefficient follows the measured KL; init_coef is only where it starts.",
        lambda given: given.set("kl.target"),
    ),
    Remark(
        "policy_loss_type",
        "note",
        "GSPO here differentiates the mean ratio and forces a mean per sequence; verl and SkyRL keep each token's own gradient.",
        lambda given: given["policy_loss_type"] == "gspo",
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
