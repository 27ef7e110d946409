"""What it takes to turn a reader of losses and advantages round: the names each key may have, from the reader's own tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trimtab.dialects.objectives import openrlhf, roll, skyrl, slime, trl, verl


class Unsaid:
    """A key that is left out."""

    def __repr__(self) -> str:
        return "unsaid"


UNSAID: Final = Unsaid()


@dataclass(frozen=True)
class Turn:
    """One framework's keys as a search sees them. Flags and choices speak for themselves; the rest is said here."""

    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """Values of a key whose kind does not name them, or does not name all."""
    joint: tuple[tuple[str, ...], ...] = ()
    """Keys that only together choose a loss or an estimator; every other key is chosen by itself."""
    seeds: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Numbers under which every option reads; those that turn out idle are left out again."""
    toggles: tuple[str, ...] = ()
    """Numbers whose 0 means off."""
    loss_reads: tuple[str, ...] = ()
    """Keys of the correction or the advantage that also choose the loss."""


def _names(table: Mapping[str, Any]) -> tuple[Any, ...]:
    return (UNSAID, *table)


_LEVELS = (UNSAID, "batch", "group", None)
_SCALED = ("scale_rewards", "multi_objective_aggregation", "normalize_advantages")

TURNS: dict[str, Turn] = {
    "verl": Turn(
        options={
            "loss_mode": tuple(name for name in _names(verl.LOSSES) if name != "bypass_mode"),
            "loss_agg_mode": _names(verl.MODES),
            "kl_loss_type": (UNSAID, *verl.KL, *(f"{name}+" for name in verl.KL)),
            "adv_estimator": _names(verl.ESTIMATORS),
        },
        joint=(("use_kl_loss", "kl_loss_type"), ("adv_estimator", "norm_adv_by_std_in_grpo")),
        seeds={"dro_beta": 0.1, "loss_scale_factor": 1024.0},
    ),
    "areal": Turn(
        options={
            f"{section}.{name}": _LEVELS
            for section in ("reward_norm", "adv_norm")
            for name in ("mean_level", "std_level")
        },
        joint=(
            ("use_sapo_loss", "importance_sampling_level"),
            ("reward_norm.mean_level", "reward_norm.std_level"),
            ("adv_norm.mean_level", "adv_norm.std_level"),
            ("kl_ctl", "kl_estimator"),
        ),
        seeds={"overlong_tokens": 100, "overlong_penalty_factor": 1.0},
        toggles=("kl_ctl",),
    ),
    "skyrl": Turn(
        options={
            "policy_loss_type": _names(skyrl.LOSSES),
            "loss_reduction": _names(skyrl.MODES),
            "advantage_estimator": _names(skyrl.ESTIMATORS),
            "use_kl_loss": (False, True),  # on unless it is said, which settings of a loss alone leave open
        },
        joint=(
            ("policy_loss_type", "dppo_type"),
            ("use_kl_loss", "kl_estimator_type"),
            ("advantage_estimator", "grpo_norm_by_std"),
        ),
        seeds={"max_seq_len": 1024.0},
    ),
    "trl": Turn(
        options={"scale_rewards": _names(trl.SCALES), "normalize_advantages": (UNSAID, False, True)},
        joint=(("loss_type", "importance_sampling_level"), ("beta", "use_bias_correction_kl"), _SCALED),
        seeds={"epsilon_high": 5.0, "reward_weights": (1.0,)},
        toggles=("beta",),
    ),
    "openrlhf": Turn(
        options={"estimator": _names(openrlhf.ESTIMATORS)},
        joint=(("init_coef", "use_loss", "kl.estimator"), ("estimator", "no_std_norm")),
        toggles=("init_coef",),
        loss_reads=("init_coef",),
    ),
    "ms-swift": Turn(
        options={"scale_rewards": (*_names(trl.SCALES), "gdpo")},
        joint=(("loss_type", "importance_sampling_level"), ("advantage_estimator", "scale_rewards")),
        seeds={"epsilon_high": 5.0, "reward_weights": (1.0,)},
        toggles=("beta",),
    ),
    "slime": Turn(
        options={"advantage_estimator": (UNSAID, *slime.GROUPED)},
        joint=(("advantage_estimator", "grpo_std_normalization"),),
        loss_reads=("advantage_estimator",),
    ),
    "nemo-rl": Turn(
        joint=(
            ("disable_ppo_ratio", "use_cispo", "sequence_level_importance_ratios"),
            ("reference_policy_kl_penalty", "reference_policy_kl_type"),
            ("use_leave_one_out_baseline", "normalize_rewards"),
        ),
        toggles=("reference_policy_kl_penalty",),
        loss_reads=("sequence_level_importance_ratios",),
    ),
    "roll": Turn(options={"loss_agg_mode": _names(roll.MODES)}),
    "prime-rl": Turn(toggles=("kl_tau",)),
}
"""By framework; one that is not here has keys that speak for themselves."""
