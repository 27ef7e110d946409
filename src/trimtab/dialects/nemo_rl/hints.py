"""How NeMo-RL's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import Hints

HINTS = Hints(
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
)
