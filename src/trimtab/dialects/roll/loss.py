"""ROLL: the workers' losses, `loss_agg_mode` as far as it looks at the mask, and rewards to advantages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import WHITEN, Estimator, Gae, Normalise, ReinforcePlusPlus, Shaping
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, text
from trimtab.dialects.objectives import ALL, Descent, Estimation, bonus, reduced, refuse, row
from trimtab.errors import ConfigError

LEVEL = choice("batch", "group", "running")
KEYS = (
    Key("loss_agg_mode", text, "seq-mean-token-mean", part="loss"),
    Key("pg_clip", number, 0.2, part="loss"),
    Key("use_pg_clip_range", flag, False, part="loss"),
    Key("pg_clip_low", number, 0.2, part="loss"),
    Key("pg_clip_high", number, 0.2, part="loss"),
    Key("dual_clip_loss", flag, False, part="loss"),
    Key("importance_sampling", choice("token", "seq"), "token", part="loss"),
    Key("ratio_type", choice("token", "segment"), "token", part="loss"),
    Key("actor_train.pg_variant", text, part="loss"),
    Key("use_kl_loss", flag, False, part="loss"),
    Key("kl_loss_coef", number, 0.0, part="loss"),
    Key("entropy_loss_coef", number, 0.0, part="loss"),
    Key("rl_loss_coef", number, 1.0, part="loss"),
    Key("postive_loss_coef", number, 0.0, part="loss"),
    Key("use_topr_neg_loss_coef", number, 0.0, part="loss"),
    Key("difficulty_loss_weight", flag, False, part="loss"),
    Key("length_loss_weight", flag, False, part="loss"),
    *(
        Key(f"actor_train.{name}", number, part="other")
        for name in (
            "cispo_epsilon_low",
            "cispo_epsilon_high",
            "cispo_use_unified_mask",
            "tis_lower_bound",
            "tis_upper_bound",
            "topr_positive_weight",
            "topr_negative_weight",
            "kimi15_tau",
        )
    ),
    Key("sequence_length", number, part="other"),
    Key("adv_estimator", text, "gae", part="advantage"),
    Key("gamma", number, 1.0, part="advantage"),
    Key("lambd", number, 0.95, part="advantage"),
    Key("norm_mean_type", LEVEL, part="advantage"),
    Key("norm_std_type", LEVEL, part="advantage"),
    Key("reward_clip", number, part="advantage"),
    Key("whiten_rewards", flag, False, part="advantage"),
    Key("whiten_advantages", flag, False, part="advantage"),
    Key("advantage_clip", number, part="advantage"),
    Key("use_reward_scaling", flag, False, part="advantage"),
    Key("add_len_reward", flag, False, part="advantage"),
    Key("add_token_level_kl", flag, False, part="advantage"),
    Key("init_kl_coef", number, 0.2, part="advantage"),
    Key("kl_penalty", choice("kl", "abs", "mse", "k3", "full"), "kl", part="advantage"),
    Key("target_kl", number, part="advantage"),
)
INERT = tuple(key.label for key in KEYS if key.path.startswith("actor_train.") and key.label != "pg_variant")
"""Keys that are looked up in a dataclass without them, so that their defaults always hold."""
MODES = {name: name for name in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")}
KL = {"kl": "k1", "abs": "abs", "mse": "k2", "k3": "k3"}
Table = dict[str, Callable[[Given], Any]]


def _ppo(given: Given) -> Objective:
    ranged = given["use_pg_clip_range"]
    low, high = (given["pg_clip_low"], given["pg_clip_high"]) if ranged else (given["pg_clip"], given["pg_clip"])
    clip: dict[str, Any] = {"low": low, "high": high}
    if given["dual_clip_loss"]:
        clip["dual"] = 1 + 2 * given["pg_clip"]
    if given["ratio_type"] == "segment":
        return ours.Gspo(**clip, level="segment")
    return ours.Gspo(**clip) if given["importance_sampling"] == "seq" else ours.Clip(**clip)


def _topr(given: Given) -> Objective:
    del given
    raise ConfigError(
        "ROLL pg_variant topr cannot be said: it looks at the sign of the score, where ours looks at that of the advantage. "
        "Use trimtab.Topr(level='token') where both agree."
    )


LOSSES: Table = {
    "ppo": _ppo,
    "vanilla": lambda _: ours.Reinforce(),
    "tis": lambda _: ours.Cispo(lower=0.0, upper=1.0),
    "cispo": lambda _: ours.Cispo(lower=0.9, upper=1.1),
    "kimi15": lambda _: ours.Dro(beta=0.1),
    "topr": _topr,
}


def descent(given: Given) -> Descent:
    """PPO of the default worker, or a variant of the policy-gradient worker; rl_loss_coef scales policy and KL terms."""
    for label, why in (
        ("postive_loss_coef", "it adds a second policy loss on rows with a positive score"),
        ("use_topr_neg_loss_coef", "it adds a second policy loss on rows without a positive score"),
        ("difficulty_loss_weight", "rows weigh by the difficulty of their prompt"),
        ("length_loss_weight", "rows weigh by their length relative to the batch"),
    ):
        refuse(given[label], f"ROLL {label}", f"{why}. Leave it out")
    name, scale = given["pg_variant"] or "ppo", given["rl_loss_coef"]
    refuse(name == "kimi15" and scale != 1, "ROLL rl_loss_coef with kimi15", "its pull is no multiple of the advantage")
    if not given.speaks_of("loss"):
        return Descent()
    return Descent(
        loss=row(LOSSES, "ROLL pg_variant", name, given),
        reduction=_reduction(given),
        kl=_kl(given, scale) if given["use_kl_loss"] else None,
        entropy=bonus(given["entropy_loss_coef"] if given["entropy_loss_coef"] > 0 else None),
        advantage_scale=scale,
    )


def _reduction(given: Given) -> Reduction | None:
    """None where nothing of ours says it: filters under token-mean, and a width that is not known."""
    mode = given["loss_agg_mode"]
    if mode == "seq-mean-token-sum-norm":
        width = given.width or (given["sequence_length"] - 1 if given["sequence_length"] else None)
        return None if width is None else Reduction(mode="token-sum", constant=float(width))
    if mode == "token-mean" and given["filters"]:
        return None
    return reduced(MODES, "ROLL loss_agg_mode", mode)


def _kl(given: Given, scale: float) -> KlPenalty:
    """k3 with the output held, paid on what the filters left."""
    return KlPenalty(coefficient=given["kl_loss_coef"] * scale, estimator="k3", output_limit=10.0, mask="kept")


def estimation(given: Given) -> Estimation:
    """Rewards normalised, then clipped, then summed to the end; GAE with a critic."""
    for label, why in (
        ("whiten_rewards", "rewards of tokens are whitened before they are summed"),
        ("use_reward_scaling", "rewards are divided by a running deviation"),
        ("add_len_reward", "a reward for length is added"),
    ):
        refuse(given[label], f"ROLL {label}", f"{why}. Leave it out")
    name, whiten = given["adv_estimator"], WHITEN if given["whiten_advantages"] else None
    if name == "gae":
        bounds, norm = _clip(given), _norm(given)
        refuse(bounds and norm, "ROLL reward_clip with norm_mean_type or norm_std_type under gae", "it clips after")
        gae = Gae(gamma=given["gamma"], lam=given["lambd"], gaps="step", normalise=whiten, **ALL)
        return _estimation(given, gae, Shaping(normalise=norm, **bounds))
    refuse(
        name in ("gigpo", "step_reinforce", "agentic_reinforce"),
        f"ROLL adv_estimator {name}",
        "it groups the steps of an environment. Use grpo, reinforce or gae",
    )
    if name not in ("grpo", "reinforce"):
        raise ConfigError(f"ROLL adv_estimator {name!r} cannot be said. Use grpo, reinforce or gae.")
    found = ReinforcePlusPlus(gamma=given["gamma"], gaps="step", normalise=whiten, **_clip(given), **ALL)
    return _estimation(given, found, Shaping(normalise=_norm(given)))


def _estimation(given: Given, found: Estimator, shaping: Shaping) -> Estimation:
    return Estimation(
        advantage=found,
        shaping=() if shaping == Shaping() else (shaping,),
        reward_kl=_reward_kl(given),
        advantage_clip=given["advantage_clip"] or None,
    )


def _clip(given: Given) -> dict[str, Any]:
    most = given["reward_clip"]
    refuse(
        most and given["add_token_level_kl"],
        "ROLL reward_clip with add_token_level_kl",
        "each token's reward is clipped once more with its penalty. Leave one out",
    )
    return {"lower": -most, "upper": most} if most else {}


def _norm(given: Given) -> Normalise | None:
    mean, std = given["norm_mean_type"], given["norm_std_type"]
    if given["adv_estimator"] == "grpo":
        mean, std = "group", "group"
    refuse("running" in (mean, std), "ROLL norm_mean_type or norm_std_type running", "it depends on earlier batches")
    refuse(
        std == "group" and mean != "group",
        f"ROLL norm_mean_type {mean} with norm_std_type group",
        "the rewards come out as a table of groups times rows. Set norm_mean_type to group",
    )
    if mean is None and std is None:
        return None
    return Normalise(mean=mean, std=std, eps=1e-6, eps_at="std")


def _reward_kl(given: Given) -> KlPenalty | None:
    if not given["add_token_level_kl"] or not given["init_kl_coef"]:
        return None
    named = given["kl_penalty"]
    refuse(named == "full", "ROLL kl_penalty full", "it needs the whole distribution of each token")
    estimator: Any = KL[named]
    return KlPenalty(
        coefficient=given["init_kl_coef"], estimator=estimator, output_limit=10.0 if named == "k3" else None
    )


REMARKS = (
    Remark(
        "loss_agg_mode",
        "defect",
        "token-mean ignores the loss mask, so the filters remove nothing from the policy loss and padding counts in the entropy; use "
        "seq-mean-token-mean.",
        lambda given: given["loss_agg_mode"] == "token-mean",
    ),
    Remark(
        "loss_agg_mode",
        "defect",
        "seq-mean-token-sum-norm is divided by the width and not by the number of sequences, so the step grows with the batch; use "
        "seq-mean-token-mean.",
        lambda given: given["loss_agg_mode"] == "seq-mean-token-sum-norm",
    ),
    Remark(
        "dual_clip_loss",
        "surprise",
        "The dual clip is 1 + 2·pg_clip ({pg_clip}) and cannot be set; others use 3.",
        lambda given: bool(given["dual_clip_loss"]),
    ),
    Remark(
        "pg_variant",
        "defect",
        "The cispo_*, tis_*, topr_* and kimi15_tau settings are looked up in a dataclass without them, so their defaults always hold; "
        "drop them.",
        lambda given: given.said(*INERT),
    ),
    Remark(
        "adv_estimator",
        "surprise",
        "gae reads critic values at masked positions, also between turns; zero them to get our numbers.",
        lambda given: given["adv_estimator"] == "gae" and given.said("adv_estimator"),
    ),
    Remark(
        "adv_estimator",
        "defect",
        "The deviation of a group of one is NaN, and so is everything after it; sample at least two answers. Ours gives 0.",
        lambda given: (
            given["adv_estimator"] == "grpo" or (given["norm_std_type"] == "group" and given.said("norm_std_type"))
        ),
    ),
    Remark(
        "target_kl",
        "note",
        "With target_kl the coefficient follows the measured KL; init_kl_coef is only where it starts.",
        lambda given: given.set("target_kl") and bool(given["add_token_level_kl"]),
    ),
    Remark(
        "entropy_loss_coef",
        "note",
        "The entropy term keeps the tokens that the filters rejected; the KL term does not.",
        lambda given: given["entropy_loss_coef"] > 0,
    ),
)
