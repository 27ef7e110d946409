"""SkyRL: `trainer.algorithm.advantage_estimator`, and the KL penalty in the reward."""

from __future__ import annotations

from trimtab.config import advantages as adv
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import ALL, RAW, AdvantagePart, Table, refuse, row
from trimtab.dialects.skyrl.loss import kl_of

ESTIMATORS: Table = {
    "grpo": lambda g: adv.Grpo(std=g["grpo_norm_by_std"], **RAW),
    "rloo": lambda _: adv.Rloo(**ALL),
    "gae": lambda g: adv.Gae(gamma=g["gamma"], lam=g["lambd"], **ALL),
    "reinforce++": lambda g: adv.ReinforcePlusPlus(gamma=g["gamma"], gaps="reset", **ALL),
    "maxrl": lambda _: adv.MaxRl(**ALL),
}


LATER = {"gdpo": "no release up to 0.4.0 has it; it normalises each reward by itself"}
"""Estimators of SkyRL that are in no release read here, and what they do."""


def advantage_of(given: Given) -> AdvantagePart:
    """The registered estimator."""
    name = given["advantage_estimator"]
    refuse(name in LATER, f"SkyRL advantage_estimator {name}", LATER.get(name, ""))
    normalises = given["advantage_batch_normalize"]
    refuse(
        normalises and not given.documented,
        "SkyRL advantage_batch_normalize",
        "it subtracts a mean over padding. Use an estimator that normalises, or documented=True for a mean over tokens",
    )
    in_reward = given["use_kl_in_reward"] and given["kl_loss_coef"]
    return AdvantagePart(
        advantage=row(ESTIMATORS, "SkyRL advantage_estimator", name, given),
        advantage_norm=adv.Normalise(unbiased=False, eps=1e-8, eps_at="floor") if normalises else None,
        reward_kl=kl_of(given) if in_reward else None,
    )
