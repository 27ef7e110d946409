"""slime: clipping, reductions and the KL term."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, bonus, refuse
from trimtab.dialects.slime.keys import FLASH


def loss_of(given: Given) -> LossPart:
    """PPO, GSPO or CISPO by the estimator's name; a mean per sample, or per token."""
    kind, title = given["loss_type"], given.dialect.title
    refuse(
        kind not in ("policy_loss", "custom_loss"),
        f"{title} --loss-type {kind}",
        "it is a loss of its own. Use policy_loss",
    )
    refuse(given["custom_loss_function_path"], f"{title} --custom-loss-function-path", "it is a function of your own")
    own = given["custom_pg_loss_reducer_function_path"]
    refuse(own, f"{title} --custom-pg-loss-reducer-function-path", "it is a function of your own")
    mode = "token-mean" if given["calculate_per_token_loss"] else "seq-mean-token-mean"
    return LossPart(
        loss=_loss(given),
        reduction=Reduction(mode=mode),
        kl=_kl(given) if given["use_kl_loss"] and given["kl_loss_coef"] else None,
        entropy=bonus(given["entropy_coef"], mask="kept"),
    )


def _loss(given: Given) -> Objective:
    if given["pg_loss_type"] == "reinforce" or (given["pg_loss_type"] is None and _is_reinforce(given)):
        return ours.Reinforce()
    low = given["eps_clip"]
    high = low if given["eps_clip_high"] is None else given["eps_clip_high"]
    if given["advantage_estimator"] == "cispo":
        return ours.Cispo(lower=1 - low, upper=1 + high)
    kind: Any = ours.Gspo if given["advantage_estimator"] == "gspo" else ours.Clip
    # the reducer is rebuilt with what is left, the ratio of a sequence is not
    scope: dict[str, Any] = {"scope": "trained"} if kind is ours.Gspo else {}
    return kind(low=low, high=high, dual=given["eps_clip_c"], **scope)


def _is_reinforce(given: Given) -> bool:
    """Whether the objective is REINFORCE where --pg-loss-type says nothing."""
    return bool(given["use_score_centering"]) or given["advantage_estimator"] == FLASH


def _kl(given: Given) -> KlPenalty:
    """Paid on what rejection left, times the ratio where it is to be unbiased; only low_var_kl is held."""
    named = given["kl_loss_type"]
    unbiased = bool(given["use_unbiased_kl"])
    refuse(
        unbiased and named == "low_var_kl",
        f"{given.dialect.title} --use-unbiased-kl with --kl-loss-type low_var_kl",
        "the limit bites after the ratio. Use k3",
    )
    estimator: Any = {"low_var_kl": "k3"}.get(named, named)
    return KlPenalty(
        coefficient=given["kl_loss_coef"],
        estimator=estimator,
        importance="full" if unbiased else "none",
        output_limit=10.0 if named == "low_var_kl" else None,
        mask="kept",
    )
