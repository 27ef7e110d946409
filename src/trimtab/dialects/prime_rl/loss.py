"""prime-rl: −τ·A·ρ through the ratio, PPO or CISPO, all against behavior; and, before, a squared log-ratio beside it."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart, refuse
from trimtab.dialects.prime_rl.keys import CAP
from trimtab.dialects.prime_rl.kinds import OPD_TAU, REMOVED, distils, is_replaced, loss_kind, ratio_bounds


def loss_of(given: Given) -> LossPart:
    """adv_tau scales the advantages; kl_tau·ℓ², where there still is one, is twice k2 to behavior on every trained token."""
    if distils(given):  # trainer.loss is another component's
        penalty = KlPenalty(coefficient=2 * OPD_TAU, estimator="k2")
        reduction = Reduction(mode="token-mean")
        return LossPart(loss=ours.ImportancePg(), reduction=reduction, kl=penalty, kl_to="behavior")
    if loss_kind(given) == "custom":
        return LossPart()
    if given.has(*REMOVED):
        return _removed_keys(given)
    penalty = given["kl_tau"] if is_replaced(given) else 0.0
    return LossPart(
        loss=_loss(given),
        reduction=Reduction(mode="token-mean"),
        kl=KlPenalty(coefficient=2 * penalty, estimator="k2") if penalty else None,
        kl_to="behavior",
        advantage_scale=given["adv_tau"],
    )


def _loss(given: Given) -> Objective:
    """A cap far below the usual one is said by its gradient, which is CISPO's."""
    kind, cap = loss_kind(given), given["max_importance_ratio"]
    if kind == "ppo":
        low, high = ratio_bounds(given)
        refuse(cap < CAP, f"prime-rl max_importance_ratio {cap:g} with ppo", "the capped side keeps its gradient")
        return ours.Clip(low=1 - low, high=high - 1)
    if kind == "cispo":
        low, high = ratio_bounds(given)
        return ours.Cispo(lower=low or None, upper=high)
    return ours.Cispo(lower=None, upper=cap) if kind == "ipo" and cap < CAP else ours.ImportancePg()


def _removed_keys(given: Given) -> LossPart:
    """−sg(ratio · (τA − kl_tau·ℓ)) · log current: REINFORCE by the ratio, and the gradient of k2 to behavior by the ratio."""
    penalty = given["kl_tau"] if given.has("kl_tau") else 0.0
    by_sequence = given["ratio_type"] == "sequence"
    refuse(
        penalty and by_sequence,
        "prime-rl kl_tau with ratio_type sequence",
        "the penalty is weighed by the product over the sequence. Set kl_tau to 0",
    )
    more: dict[str, Any] = {"importance": "gradient", "mask": "kept"}
    return LossPart(
        loss=ours.Reinforce(),
        reduction=None if by_sequence else Reduction(mode="token-mean"),
        kl=KlPenalty(coefficient=penalty, estimator="k2", **more) if penalty else None,
        kl_to="behavior",
        advantage_scale=given["adv_tau"],
    )
