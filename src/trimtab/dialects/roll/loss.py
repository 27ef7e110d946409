"""ROLL: the workers' losses, and `loss_agg_mode` as far as it looks at the mask."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, Table, bonus, reduction_of, refuse, row
from trimtab.dialects.roll.correction import filters
from trimtab.dialects.roll.keys import uses_variant
from trimtab.errors import ConfigError

REDUCTIONS = {name: name for name in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum")}


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
    """By the sign of the score. Ours goes by that of the advantage: the same where the advantage is the score times something positive."""
    moved = ("norm_mean_type", "whiten_advantages", "add_token_level_kl", "whiten_rewards", "add_len_reward")
    if given["adv_estimator"] != "reinforce" or given.is_on(*moved) or given["gamma"] <= 0:
        raise ConfigError(
            "ROLL pg_variant topr cannot be said: it looks at the sign of the score, where ours looks at that of the advantage. Both agree "
            "with adv_estimator reinforce and nothing subtracted from rewards or advantages."
        )
    return ours.Topr(level="token", positive=given["topr_positive_weight"], negative=given["topr_negative_weight"])


LOSSES: Table = {
    "ppo": _ppo,
    "vanilla": lambda _: ours.Reinforce(),
    "tis": lambda _: ours.Cispo(lower=0.0, upper=1.0),
    "cispo": lambda _: ours.Cispo(lower=0.9, upper=1.1),
    "kimi15": lambda _: ours.Dro(beta=0.1),
    "topr": _topr,
}


def loss_of(given: Given) -> LossPart:
    """PPO of the default worker, or a variant of the policy-gradient worker; rl_loss_coef scales policy and KL terms."""
    for label, why in (
        ("postive_loss_coef", "it adds a second policy loss on rows with a positive score"),
        ("use_topr_neg_loss_coef", "it adds a second policy loss on rows without a positive score"),
        ("difficulty_loss_weight", "rows weigh by the difficulty of their prompt"),
        ("length_loss_weight", "rows weigh by their length relative to the batch"),
    ):
        refuse(given[label], f"ROLL {label}", f"{why}. Leave it out")
    name, scale = (given["pg_variant"] if uses_variant(given) else None) or "ppo", given["rl_loss_coef"]
    refuse(name == "kimi15" and scale != 1, "ROLL rl_loss_coef with kimi15", "its pull is no multiple of the advantage")
    if not given.speaks_of("loss"):
        return LossPart()
    return LossPart(
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
    if mode == "token-mean" and filters(given):
        return None
    return reduction_of(REDUCTIONS, "ROLL loss_agg_mode", mode)


def _kl(given: Given, scale: float) -> KlPenalty:
    """k3 with the output held, paid on what the filters left."""
    return KlPenalty(coefficient=given["kl_loss_coef"] * scale, estimator="k3", output_limit=10.0, mask="kept")
