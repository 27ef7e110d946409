"""What there is to say about prime-rl: each finding as data."""

from __future__ import annotations

from trimtab.dialects.dialect import Given, Remark
from trimtab.dialects.prime_rl.loss import REMOVED


def _is_removed(given: Given) -> bool:
    return given.has(*REMOVED)


OTHER_COMPONENTS = ("opd", "opsd", "sft", "dataset_sft", "echo")
"""Algorithms that train tokens otherwise than by the policy's loss."""
REMARKS = (
    Remark(
        "type",
        "note",
        "Tokens with advantage 0 leave the loss and its denominator; pass them masked to get the same number.",
        lambda given: given["type"] != "custom",
    ),
    Remark(
        "kl_tau",
        "note",
        "kl_tau·ℓ² has no ½ and runs over every trained token, dropped ones included; it is our k2 to behavior with twice the "
        "coefficient.",
        lambda given: given.is_on("kl_tau") and given["type"] != "custom" and not _is_removed(given),
    ),
    Remark(
        "type",
        "surprise",
        "The ratio of kept tokens is uncapped; the older ratio bounds (token_mask, geo_mask, sequence_clip) are gone.",
        lambda given: given["type"] != "custom" and not _is_removed(given),
    ),
    Remark(
        "type",
        "note",
        "A custom loss is a function of your own and cannot be read.",
        lambda given: given["type"] == "custom",
    ),
    Remark(
        "ratio_type",
        "note",
        "The ratio bounds were removed in 02bdca2e4 and are read as they were; today's loss drops tokens by how far their probability "
        "moved (dppo_mask_low, dppo_mask_high) and differentiates the ratio.",
        _is_removed,
    ),
    Remark(
        "ratio_type",
        "surprise",
        "With ratio_type sequence each sequence was divided by its own length before the sum; the reduction is not read: pass your own.",
        lambda given: _is_removed(given) and given["ratio_type"] == "sequence",
    ),
    Remark(
        "algo.type",
        "surprise",
        "This algorithm trains tokens by a component of its own, beside or in place of trainer.loss; what that computes is not in this "
        "reading.",
        lambda given: given["algo.type"] in OTHER_COMPONENTS,
    ),
    Remark(
        "algo.type",
        "note",
        "Advantages are never divided by a deviation, and a group of one gets 0.",
        lambda given: given.speaks_of("advantage"),
    ),
)
