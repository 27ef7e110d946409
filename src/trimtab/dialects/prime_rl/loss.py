"""prime-rl: −τ·A·ρ through the ratio, and a squared log-ratio to behavior."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Reduction
from trimtab.dialects.dialect import Given
from trimtab.dialects.objectives import LossPart, refuse


def loss_of(given: Given) -> LossPart:
    """kl_tau·ℓ² is twice k2 to behavior, on every trained token; adv_tau scales the advantages."""
    if given["type"] == "custom":
        return LossPart()
    if given.has(*REMOVED):
        return _removed_keys(given)
    penalty = KlPenalty(coefficient=2 * given["kl_tau"], estimator="k2") if given["kl_tau"] else None
    return LossPart(
        loss=ours.ImportancePg(),
        reduction=Reduction(mode="token-mean"),
        kl=penalty,
        kl_to="behavior",
        advantage_scale=given["adv_tau"],
    )


REMOVED = (
    "ratio_type",
    "token_mask_low",
    "token_mask_high",
    "geo_mask_low",
    "geo_mask_high",
    "sequence_mask_low",
    "sequence_mask_high",
    "sequence_clip_high",
)
"""Keys of the loss before 02bdca2e4."""


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
