"""ms-swift: `advantage_estimator` and `scale_rewards`; TRL's names, mostly with TRL's meaning."""

from __future__ import annotations

from trimtab.config.advantages import Distillation, Estimator, Gdpo, Grpo, Normalise, ReinforcePlusPlus, Rloo, Shaping
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import AdvantagePart, refuse
from trimtab.dialects.swift.loss import pays_kl_in_reward
from trimtab.dialects.trl.advantage import SCALES, scale
from trimtab.errors import ConfigError

ROW_WISE = Normalise(unit="sequence", eps=1e-4, eps_at="std")
TIED = {"grpo": "group", "rloo": "none", "reinforce_plus_plus": "batch"}
"""scale_rewards where it is left out."""


def advantage_of(given: Given) -> AdvantagePart:
    """GRPO, RLOO, REINFORCE++ over groups, or several rewards normalised each; a teacher's log-ratio on top, where there is one."""
    refuse(given["advantage_reweight"], "ms-swift advantage_reweight", "it needs a teacher's log-probs. Leave it out")
    refuse(
        pays_kl_in_reward(given) and given.has("beta") and given["beta"],
        "ms-swift beta with kl_in_reward",
        "the KL of an answer is taken off its reward before the baseline. Take it off yourself and set beta to 0",
    )
    others, found = _others(given), _advantage(given)
    if given["teacher_model"] or given["teacher_model_server"]:
        found = Distillation(coefficient=given["teacher_kl_coef"], base=found, baseline="all")  # pyright: ignore[reportArgumentType]
    return AdvantagePart(advantage=found, shaping=() if others is None else (Shaping(normalise=others),))


def _advantage(given: Given) -> Estimator:
    name = given["advantage_estimator"]
    scaling = given["scale_rewards"] if given["scale_rewards"] is not None else TIED[name]
    if scaling == "gdpo":
        if not given["reward_weights"]:
            raise ConfigError("ms-swift scale_rewards gdpo needs reward_weights here, one number per reward function.")
        return Gdpo(weights=tuple(given["reward_weights"]), eps=1e-8, normalise=ROW_WISE.but(eps=1e-8), baseline="all")
    scaling = scale("ms-swift", scaling)
    if name == "grpo" or (name, scaling) == ("reinforce_plus_plus", "group"):
        return Grpo(eps=1e-4, baseline="all", **SCALES[scaling])
    if name == "reinforce_plus_plus":
        return Grpo(std=False, normalise=ROW_WISE.but(mean=None) if scaling == "batch" else None, baseline="all")
    return Rloo(baseline="all") if scaling == "none" else ReinforcePlusPlus(normalise=None, baseline="all")


def _others(given: Given) -> Normalise | None:
    """rloo divided by the deviation of the rewards: what is left of the reward after that is the advantage."""
    scaling = given["scale_rewards"]
    if given["advantage_estimator"] != "rloo" or scaling not in ("group", "batch"):
        return None
    return Normalise(mean="group", std=scaling, leave_one_out=True, eps=1e-4, eps_at="std")
