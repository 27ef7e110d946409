"""prime-rl: the advantages of the orchestrator."""

from __future__ import annotations

from trimtab.config.advantages import Distillation, Estimator, Grpo, MaxRl, Opo
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import AdvantagePart, refuse
from trimtab.errors import UnknownNameError, nearest

WITHOUT_ESTIMATOR = {
    "rae": "its baseline is a running mean per agent",
    "hierarchical_grpo": "its groups are roles within a problem",
    "opsd": "it distils the policy itself and has no reward",
    "sft": "it has no advantage",
    "dataset_sft": "it has no advantage",
    "echo": "it also trains on observations",
    "custom": "it is a function of your own",
    "debug": "it is for debugging",
}
"""Algorithms without an estimator of ours, and why."""


def advantage_of(given: Given) -> AdvantagePart:
    """The group's mean subtracted, never divided by a deviation; or divided by that mean."""
    name = given["algo.type"]
    refuse(
        given["length_penalty"] not in (None, False, "off"),
        "prime-rl length_penalty",
        "rewards are shaped by lengths relative to the group. Shape them yourself and leave it out",
    )
    if name == "opd":
        return AdvantagePart(advantage=Distillation(student="current", baseline="all"))
    refuse(name in WITHOUT_ESTIMATOR, f"prime-rl algo.type {name}", WITHOUT_ESTIMATOR.get(name, ""))
    grpo: Estimator = Opo(baseline="all") if given["length_weighted_baseline"] else Grpo(std=False, baseline="all")
    kinds: dict[str, Estimator] = {"grpo": grpo, "default": grpo, "max_rl": MaxRl(eps=0.0, baseline="all")}
    if name not in kinds:
        raise UnknownNameError(f"prime-rl algo.type {name!r} cannot be said. {nearest(name, kinds)}")
    return AdvantagePart(advantage=kinds[name])
