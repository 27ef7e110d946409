"""OpenRLHF: `--algo.advantage.estimator`, and rewards shaped before it."""

from __future__ import annotations

from typing import Any

from trimtab.config.advantages import Gae, Grpo, Normalise, Overlong, ReinforcePlusPlus, Rloo, Shaping
from trimtab.config.losses import KlPenalty
from trimtab.dialects.framework import Given
from trimtab.dialects.openrlhf.loss import estimator_of_kl, two_numbers
from trimtab.dialects.parts import ALL, AdvantagePart, Table, refuse, row
from trimtab.errors import ConfigError

BIASED = Normalise(unbiased=False, eps=1e-8, eps_at="floor")
ESTIMATORS: Table = {
    "gae": lambda g: Gae(
        gamma=g["gamma"],
        lam=g["lambd"],
        gaps="step",
        normalise=BIASED.but(std=None if g["no_std_norm"] else "batch"),
        **ALL,
    ),
    "reinforce": lambda g: ReinforcePlusPlus(gamma=g["gamma"], gaps="step", normalise=_whitening(g), **ALL),
    "reinforce_baseline": lambda g: ReinforcePlusPlus(
        group_mean=True, gaps="step", normalise=_whitening(g), **_clip_bounds(g), **ALL
    ),
    "flash_reinforce": lambda g: ReinforcePlusPlus(gaps="step", normalise=None, **_clip_bounds(g), **ALL),
    "rloo": lambda g: Rloo(**_clip_bounds(g), **ALL),
    "group_norm": lambda g: Grpo(eps=1e-9, **_clip_bounds(g), **ALL),
    "dr_grpo": lambda g: Grpo(std=False, **_clip_bounds(g), **ALL),
}
"""gamma is read by gae and reinforce only; rewards are clipped after the baseline, before they are summed."""


def _clip_bounds(given: Given) -> dict[str, float]:
    lower, upper = two_numbers(given, "clip_range")
    return {"lower": lower, "upper": upper}


def _shaping(given: Given, name: str) -> Shaping:
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
        fields |= _clip_bounds(given)
    return Shaping(**fields)


def _whitening(given: Given) -> Normalise:
    return BIASED.but(std=None) if given["no_std_norm"] else BIASED


def advantage_of(given: Given) -> AdvantagePart:
    """The estimator, what it subtracts first, and the KL penalty in the reward."""
    name, coefficient = given["estimator"], given["init_coef"]
    in_reward = coefficient and not given["use_loss"] and given.has("init_coef")
    alone = given.has("n_samples_per_prompt") and given["n_samples_per_prompt"] < 2
    if alone and name in ("rloo", "reinforce_baseline", "group_norm", "dr_grpo"):
        raise ConfigError(
            f"OpenRLHF estimator {name} needs n_samples_per_prompt above 1: a group of one has no others."
        )
    shaping = _shaping(given, name)
    return AdvantagePart(
        advantage=row(ESTIMATORS, "OpenRLHF algo.advantage.estimator", name, given),
        shaping=() if shaping == Shaping() else (shaping,),
        reward_kl=KlPenalty(coefficient=coefficient, estimator=estimator_of_kl(given), output_limit=10.0)
        if in_reward
        else None,
    )
