"""prime-rl: −τ·A·ρ through the ratio, a squared log-ratio to behavior, and the advantages of the orchestrator."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Estimator, Grpo, MaxRl, Opo
from trimtab.config.losses import KlPenalty, Reduction
from trimtab.dialects.keys import Given, Key, Remark, flag, raw, text
from trimtab.dialects.objectives import Descent, Estimation, refuse
from trimtab.errors import UnknownNameError, nearest

ALGO = "orchestrator.algo"
KEYS = (
    Key(
        f"{ALGO}.type",
        text,
        "grpo",
        part="advantage",
        name="algo.type",
        also=("orchestrator.advantage.type", "algo.type", "advantage.type"),
    ),
    Key(
        f"{ALGO}.length_penalty",
        raw,
        part="advantage",
        also=(
            "orchestrator.advantage.length_penalty",
            "orchestrator.advantage.length_shaping",
            f"{ALGO}.length_shaping",
        ),
    ),
    Key(
        f"{ALGO}.length_weighted_baseline",
        flag,
        False,
        part="advantage",
        also=("orchestrator.advantage.length_weighted_mean",),
    ),
)
OTHERS = {
    "rae": "its baseline is a running mean per agent",
    "hierarchical_grpo": "its groups are roles within a problem",
    "opd": "it distils a teacher and has no reward",
    "opsd": "it distils the policy itself and has no reward",
    "sft": "it has no advantage",
    "echo": "it also trains on observations",
    "custom": "it is a function of your own",
    "debug": "it is for debugging",
}
"""Algorithms without an estimator of ours, and why."""


def descent(given: Given) -> Descent:
    """kl_tau·ℓ² is twice k2 to behavior, on every trained token; adv_tau scales the advantages."""
    if given["type"] == "custom":
        return Descent()
    if given.said(*REMOVED):
        return _removed(given)
    penalty = KlPenalty(coefficient=2 * given["kl_tau"], estimator="k2") if given["kl_tau"] else None
    return Descent(
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


def _removed(given: Given) -> Descent:
    """−sg(ratio · (τA − kl_tau·ℓ)) · log current: REINFORCE by the ratio, and the gradient of k2 to behavior by the ratio."""
    penalty = given["kl_tau"] if given.said("kl_tau") else 0.0
    by_sequence = given["ratio_type"] == "sequence"
    refuse(
        penalty and by_sequence,
        "prime-rl kl_tau with ratio_type sequence",
        "the penalty is weighed by the product over the sequence. Set kl_tau to 0",
    )
    more: dict[str, Any] = {"importance": "gradient", "mask": "kept"}
    return Descent(
        loss=ours.Reinforce(),
        reduction=None if by_sequence else Reduction(mode="token-mean"),
        kl=KlPenalty(coefficient=penalty, estimator="k2", **more) if penalty else None,
        kl_to="behavior",
        advantage_scale=given["adv_tau"],
    )


def estimation(given: Given) -> Estimation:
    """The group's mean subtracted, never divided by a deviation; or divided by that mean."""
    name = given["algo.type"]
    refuse(
        given["length_penalty"] not in (None, False, "off"),
        "prime-rl length_penalty",
        "rewards are shaped by lengths relative to the group. Shape them yourself and leave it out",
    )
    refuse(name in OTHERS, f"prime-rl algo.type {name}", OTHERS.get(name, ""))
    grpo: Estimator = Opo(baseline="all") if given["length_weighted_baseline"] else Grpo(std=False, baseline="all")
    kinds: dict[str, Estimator] = {"grpo": grpo, "default": grpo, "max_rl": MaxRl(eps=0.0, baseline="all")}
    if name not in kinds:
        raise UnknownNameError(f"prime-rl algo.type {name!r} cannot be said. {nearest(name, kinds)}")
    return Estimation(advantage=kinds[name])


REMARKS = (
    Remark(
        "algo.type",
        "note",
        "Advantages are never divided by a deviation, and a group of one gets 0.",
        lambda given: given.speaks_of("advantage"),
    ),
)
