"""verl: `algorithm.adv_estimator`, and the KL penalty in the reward."""

from __future__ import annotations

from trimtab.config import advantages as adv
from trimtab.config.advantages import Normalise
from trimtab.config.losses import KlPenalty
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import ALL, RAW, AdvantagePart, Table, refuse, row
from trimtab.dialects.verl.loss import kl_estimator
from trimtab.dialects.verl.teacher import follows_teacher, teacher_advantage

ESTIMATORS: Table = {
    "gae": lambda g: adv.Gae(gamma=g["gamma"], lam=g["lam"], **ALL),
    "grpo": lambda g: adv.Grpo(std=g["norm_adv_by_std_in_grpo"], **RAW),
    "grpo_vectorized": lambda g: adv.Grpo(std=g["norm_adv_by_std_in_grpo"], **RAW),
    "rloo": lambda _: adv.Rloo(**RAW),
    "rloo_vectorized": lambda _: adv.Rloo(**ALL),
    "reinforce_plus_plus": lambda g: adv.ReinforcePlusPlus(gamma=g["gamma"], **ALL),
    "reinforce_plus_plus_baseline": lambda _: adv.ReinforcePlusPlus(group_mean=True, **RAW),
    "remax": lambda _: adv.ReMax(**ALL),
    "opo": lambda _: adv.Opo(**RAW),
    "gpg": lambda _: adv.Gpg(factor="nonzero", **RAW),
    "grpo_passk": lambda g: adv.PassK(std=g["norm_adv_by_std_in_grpo"], **ALL),
    "optimal_token_baseline": lambda _: adv.OptimalToken(**RAW),
    "tir_optimal_token_baseline": lambda _: adv.OptimalToken(**RAW),
    "gdpo": lambda g: adv.Gdpo(
        weights=tuple(g["gdpo_reward_weights"] or [1.0] * len(g["gdpo_reward_keys"] or "1")),
        std=g["norm_adv_by_std_in_grpo"],
        normalise=Normalise(),
        **RAW,
    ),
}


def advantage_of(given: Given) -> AdvantagePart:
    """The registered estimator, and the KL penalty in the reward."""
    if follows_teacher(given):
        return AdvantagePart(advantage=teacher_advantage(given))
    name, penalty = given["adv_estimator"], given["kl_coef"] if given["use_kl_in_reward"] else 0.0
    refuse(given["use_pf_ppo"], "verl use_pf_ppo", "rows are drawn again by their reward. Switch it off")
    return AdvantagePart(
        advantage=row(ESTIMATORS, "verl adv_estimator", name, given),
        reward_kl=KlPenalty(coefficient=penalty, **kl_estimator(given, "kl_penalty")) if penalty else None,
    )
