"""prime-rl: −τ·A·ρ through the ratio, and a squared log-ratio to behavior."""

from __future__ import annotations

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Reduction
from trimtab.dialects.keys import Given
from trimtab.dialects.objectives.kinds import Descent


def descent(given: Given) -> Descent:
    """kl_tau·ℓ² is twice k2 to behavior, on every trained token; adv_tau scales the advantages."""
    if given["type"] == "custom":
        return Descent()
    penalty = KlPenalty(coefficient=2 * given["kl_tau"], estimator="k2") if given["kl_tau"] else None
    return Descent(
        loss=ours.ImportancePg(),
        reduction=Reduction(mode="token-mean"),
        kl=penalty,
        kl_to="behavior",
        advantage_scale=given["adv_tau"],
    )
