"""ROLL: from rewards to advantages."""

from __future__ import annotations

from typing import Any

from trimtab.config.advantages import WHITEN, Estimator, Gae, Normalise, ReinforcePlusPlus, Shaping
from trimtab.config.losses import KlPenalty
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import ALL, AdvantagePart, refuse
from trimtab.dialects.roll.keys import NORM, has_environments
from trimtab.errors import ConfigError

KL = {"kl": "k1", "abs": "abs", "mse": "k2", "k3": "k3"}


def advantage_of(given: Given) -> AdvantagePart:
    """Rewards normalised, then clipped, then summed to the end; GAE with a critic."""
    for label, why in (
        ("whiten_rewards", "rewards of tokens are whitened before they are summed"),
        ("use_reward_scaling", "rewards are divided by a running deviation"),
        ("add_len_reward", "a reward for length is added"),
    ):
        refuse(given[label], f"ROLL {label}", f"{why}. Leave it out")
    name, whiten = given["adv_estimator"], WHITEN if given["whiten_advantages"] else None
    if name == "gae":
        bounds, norm = _clip(given), _norm(given)
        refuse(bounds and norm, "ROLL reward_clip with norm_mean_type or norm_std_type under gae", "it clips after")
        gae = Gae(gamma=given["gamma"], lam=given["lambd"], gaps="step", normalise=whiten, **ALL)
        return _advantage_part(given, gae, Shaping(normalise=norm, **bounds))
    refuse(
        name in ("gigpo", "step_reinforce", "agentic_reinforce"),
        f"ROLL adv_estimator {name}",
        "it groups the steps of an environment. Use grpo, reinforce or gae",
    )
    if name not in ("grpo", "reinforce"):
        raise ConfigError(f"ROLL adv_estimator {name!r} cannot be said. Use grpo, reinforce or gae.")
    found = ReinforcePlusPlus(gamma=given["gamma"], gaps="step", normalise=whiten, **_clip(given), **ALL)
    return _advantage_part(given, found, Shaping(normalise=_norm(given)))


def _advantage_part(given: Given, found: Estimator, shaping: Shaping) -> AdvantagePart:
    return AdvantagePart(
        advantage=found,
        shaping=() if shaping == Shaping() else (shaping,),
        reward_kl=_reward_kl(given),
        advantage_clip=given["advantage_clip"] or None,
    )


def _clip(given: Given) -> dict[str, Any]:
    most = given["reward_clip"]
    refuse(
        most and given["add_token_level_kl"],
        "ROLL reward_clip with add_token_level_kl",
        "each token's reward is clipped once more with its penalty. Leave one out",
    )
    return {"lower": -most, "upper": most} if most else {}


def _norm(given: Given) -> Normalise | None:
    mean, std = norm_types(given)
    refuse("running" in (mean, std), "ROLL norm_mean_type or norm_std_type running", "it depends on earlier batches")
    refuse(
        std == "group" and mean != "group",
        f"ROLL norm_mean_type {mean} with norm_std_type group",
        "its rewards come out as a table of groups times rows in RLVR, and as 0 in the agentic pipelines where a group agrees. Set "
        "norm_mean_type to group",
    )
    if mean is None and std is None:
        return None
    return Normalise(mean=mean, std=std, eps=1e-6, eps_at="std")


def norm_types(given: Given) -> tuple[Any, Any]:
    """Over what the mean and the deviation of the rewards are taken; None for neither."""
    if has_environments(given):
        return _agentic_types(given)
    if given["adv_estimator"] == "grpo":
        return "group", "group"
    return given["norm_mean_type"], given["norm_std_type"]


def _agentic_types(given: Given) -> tuple[Any, Any]:
    """What the section says; `method`, the older spelling, where the types are left out. The estimator plays no part."""
    grouping, method = given[f"{NORM}.grouping"], given[f"{NORM}.method"]
    unit = "batch" if grouping == "batch" else "group"
    mean = given[f"{NORM}.norm_mean_type"] or (unit if method in ("mean", "mean_std", "asym_clip") else None)
    std = given[f"{NORM}.norm_std_type"] or (unit if method in ("mean_std", "asym_clip") else None)
    if grouping == "batch":
        return mean and "batch", std and "batch"
    refuse(
        "group" in (mean, std) and grouping != "traj_group_id",
        f"ROLL {NORM}.grouping {grouping}",
        "it compares the answers of more than one prompt, or of the steps within one. Use traj_group_id or batch",
    )
    return mean, std


def _reward_kl(given: Given) -> KlPenalty | None:
    if not given["add_token_level_kl"] or not given["init_kl_coef"]:
        return None
    named = given["kl_penalty"]
    refuse(named == "full", "ROLL kl_penalty full", "it needs the whole distribution of each token")
    estimator: Any = KL[named]
    return KlPenalty(
        coefficient=given["init_kl_coef"], estimator=estimator, output_limit=10.0 if named == "k3" else None
    )
