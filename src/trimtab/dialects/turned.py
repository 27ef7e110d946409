"""What it takes to turn a reader of losses and advantages round: the names each key may have, from the reader's own tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trimtab.dialects.keys import Kind, number
from trimtab.dialects.openrlhf.advantage import ESTIMATORS as OPENRLHF_ESTIMATORS
from trimtab.dialects.roll import loss as roll
from trimtab.dialects.skyrl import loss as skyrl
from trimtab.dialects.skyrl.advantage import ESTIMATORS as SKYRL_ESTIMATORS
from trimtab.dialects.trl.advantage import SCALES
from trimtab.dialects.verl import loss as verl
from trimtab.dialects.verl.advantage import ESTIMATORS as VERL_ESTIMATORS


class Unsaid:
    """A key that is left out."""

    def __repr__(self) -> str:
        return "unsaid"


UNSAID: Final = Unsaid()


@dataclass(frozen=True)
class Turn:
    """One framework's keys as a search sees them. Flags and choices speak for themselves; the rest is said here."""

    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """Values of a key whose kind does not name them, or does not name all; a number among them is then moved to the goal."""
    joint: tuple[tuple[str, ...], ...] = ()
    """Keys that only together choose a loss or an estimator; every other key is chosen by itself."""
    seeds: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values under which every option reads; those that turn out idle are left out again."""
    follows: Mapping[str, str] = field(default_factory=dict[str, str])
    """Numbers that another key switches on or multiplies: the field of ours each stands for, whose value goes in first."""
    frees: tuple[str, ...] = ()
    """Flags that free a number from another, tried where numbers do not fit without."""
    kinds: Mapping[str, Kind] = field(default_factory=dict[str, Kind])
    """What a key that may hold anything holds here."""
    toggles: tuple[str, ...] = ()
    """Numbers whose 0 means off."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Part → keys of other parts that choose it too."""


def _names(table: Iterable[str]) -> tuple[Any, ...]:
    return (UNSAID, *table)


_LEVELS = (UNSAID, "batch", "group", None)
_SCALED = ("scale_rewards", "multi_objective_aggregation", "normalize_advantages")

TURNS: dict[str, Turn] = {
    "verl": Turn(
        options={
            "loss_mode": tuple(name for name in _names(verl.LOSSES) if name != "bypass_mode"),
            "loss_agg_mode": _names(verl.REDUCTIONS),
            "kl_loss_type": (UNSAID, *verl.KL, *(f"{name}+" for name in verl.KL)),
            "adv_estimator": _names(VERL_ESTIMATORS),
            "kl_penalty": _names(verl.KL),
        },
        joint=(
            ("use_kl_loss", "kl_loss_type"),
            ("adv_estimator", "norm_adv_by_std_in_grpo"),
            ("use_kl_in_reward", "kl_penalty"),
        ),
        seeds={"dro_beta": 0.1, "loss_scale_factor": 1024.0},
    ),
    "areal": Turn(
        options={
            f"{section}.{name}": _LEVELS
            for section in ("reward_norm", "adv_norm")
            for name in ("mean_level", "std_level")
        },
        joint=(
            ("use_cispo_loss", "use_sapo_loss", "importance_sampling_level"),
            ("reward_norm.mean_level", "reward_norm.std_level"),
            ("adv_norm.mean_level", "adv_norm.std_level"),
            ("kl_ctl", "kl_estimator"),
        ),
        seeds={"overlong_tokens": 100, "overlong_penalty_factor": 1.0, "eps_clip_higher": 0.2},
        kinds={"gae_lambda": number},
        toggles=("kl_ctl",),
    ),
    "skyrl": Turn(
        options={
            "policy_loss_type": _names(skyrl.LOSSES),
            "loss_reduction": _names(skyrl.REDUCTIONS),
            "advantage_estimator": _names(SKYRL_ESTIMATORS),
            "use_kl_loss": (False, True),  # on unless it is said, which settings of a loss alone leave open
        },
        joint=(
            ("policy_loss_type", "dppo_type"),
            ("use_kl_loss", "kl_estimator_type"),
            ("use_kl_in_reward", "kl_estimator_type"),
            ("advantage_estimator", "grpo_norm_by_std"),
        ),
        seeds={"max_seq_len": 1024.0},
        reads={"advantage": ("kl_loss_coef", "kl_estimator_type")},
    ),
    "trl": Turn(
        options={"scale_rewards": _names(SCALES), "normalize_advantages": (UNSAID, False, True)},
        joint=(("loss_type", "importance_sampling_level"), ("beta", "use_bias_correction_kl"), _SCALED),
        seeds={"epsilon_high": 5.0, "reward_weights": (1.0,)},
        toggles=("beta",),
    ),
    "openrlhf": Turn(
        options={"estimator": _names(OPENRLHF_ESTIMATORS)},
        joint=(("init_coef", "use_loss", "kl.estimator", "unbiased_gradient"), ("estimator", "no_std_norm")),
        toggles=("init_coef", "overlong_buffer_len"),
        reads={"loss": ("init_coef",)},
    ),
    "ms-swift": Turn(
        options={"scale_rewards": (*_names(SCALES), "gdpo"), "kl_in_reward": (UNSAID, False, True)},
        joint=(("loss_type", "importance_sampling_level"), ("advantage_estimator", "scale_rewards", "kl_in_reward")),
        seeds={"epsilon_high": 5.0, "reward_weights": (1.0,)},
        toggles=("beta",),
    ),
    "slime": Turn(
        joint=(
            ("advantage_estimator", "grpo_std_normalization"),
            ("use_kl_loss", "kl_loss_type", "use_unbiased_kl"),
            ("kl_coef", "kl_loss_type"),
        ),
        seeds={"kl_loss_coef": 0.1},
        toggles=("kl_coef",),
        reads={"loss": ("advantage_estimator",)},
    ),
    "nemo-rl": Turn(
        joint=(
            ("disable_ppo_ratio", "use_cispo", "sequence_level_importance_ratios"),
            ("adv_estimator.name", "use_leave_one_out_baseline", "normalize_rewards"),
            ("reference_policy_kl_penalty", "reference_policy_kl_type", "use_kl_in_reward"),
        ),
        seeds={"reward_weights": (1.0,)},
        toggles=("reference_policy_kl_penalty", "length_adaptive_alpha"),
        reads={
            "loss": ("sequence_level_importance_ratios",),
            "advantage": ("reference_policy_kl_penalty", "use_kl_in_reward"),
        },
    ),
    "roll": Turn(
        options={
            "loss_agg_mode": (*_names(roll.REDUCTIONS), "seq-mean-token-sum-norm"),
            "pg_variant": _names(roll.LOSSES),
            "adv_estimator": (UNSAID, "gae", "reinforce", "grpo"),
        },
        joint=(
            ("pg_variant", "importance_sampling", "ratio_type"),
            ("adv_estimator", "norm_mean_type", "norm_std_type"),
            ("add_token_level_kl", "kl_penalty"),
        ),
        seeds={"sequence_length": 1025.0},
        follows={
            "pg_clip": "loss.low",
            "pg_clip_low": "loss.low",
            "pg_clip_high": "loss.high",
            "rl_loss_coef": "advantage_scale",
            "advantage_clip": "advantage_clip",
        },
        frees=("use_pg_clip_range",),
    ),
    "prime-rl": Turn(
        options={"algo.type": (UNSAID, "grpo", "max_rl")},
        joint=(("algo.type", "length_weighted_baseline"),),
        toggles=("kl_tau",),
    ),
    "open-instruct": Turn(
        options={"loss_fn": (UNSAID, "dapo", "cispo"), "loss_denominator": (UNSAID, 1024.0)},
        joint=(("beta", "kl_estimator"),),
        kinds={"loss_denominator": number},
        toggles=("beta",),
    ),
}
"""By framework; one that is not here has keys that speak for themselves."""
