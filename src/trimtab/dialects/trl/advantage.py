"""TRL: GRPOConfig's advantages, and RLOOConfig's."""

from __future__ import annotations

from typing import Any

from trimtab.config.advantages import Estimator, Gdpo, Grpo, Normalise, Rloo, Shaping
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import AdvantagePart, refuse
from trimtab.dialects.trl.keys import is_rloo, refuse_absent
from trimtab.errors import ConfigError

ROW_WISE = Normalise(unit="sequence", eps=1e-4, eps_at="std")
SCALES: dict[str, dict[str, Any]] = {
    "group": {"std": True},
    "batch": {"std": True, "std_over": "batch"},
    "none": {"std": False},
}


def advantage_of(given: Given) -> AdvantagePart:
    """GRPO's scaling, several rewards normalised each, or RLOO."""
    refuse_absent(given, "advantage")
    refuse(
        is_rloo(given) and given.has("beta") and given["beta"],
        "TRL RLOOConfig beta",
        "the summed KL of an answer is taken off its reward before the baseline. Take it off yourself and set beta to 0",
    )
    bounds = given["reward_clip_range"]
    if bounds is not None and len(bounds) != 2:
        raise ConfigError(f"TRL reward_clip_range needs two numbers, got {list(bounds)}.")
    shaping = () if bounds is None else (Shaping(lower=bounds[0], upper=bounds[1]),)
    return AdvantagePart(advantage=_advantage(given), shaping=shaping)


def _advantage(given: Given) -> Estimator:
    if is_rloo(given):
        return Rloo(normalise=ROW_WISE if given["normalize_advantages"] else None, baseline="all")
    if given["multi_objective_aggregation"] == "normalize_then_sum":
        if not given["reward_weights"]:
            raise ConfigError("TRL normalize_then_sum needs reward_weights here, one number per reward function.")
        return Gdpo(weights=tuple(given["reward_weights"]), eps=1e-4, normalise=ROW_WISE, baseline="all")
    return Grpo(eps=1e-4, baseline="all", **SCALES[scale("TRL", given["scale_rewards"])])


def scale(title: str, value: Any) -> str:
    """group, batch or none; true and false are older spellings of the first and last."""
    name = {True: "group", False: "none"}.get(value, value) if isinstance(value, bool) else str(value)
    if name not in SCALES:
        raise ConfigError(f"{title} scale_rewards needs group, batch or none, got {value!r}.")
    return name
