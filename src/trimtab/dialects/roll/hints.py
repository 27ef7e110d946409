"""How ROLL's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import UNSAID, Hints, names
from trimtab.dialects.roll.loss import LOSSES, REDUCTIONS

HINTS = Hints(
    options={
        "loss_agg_mode": (*names(REDUCTIONS), "seq-mean-token-sum-norm"),
        "pg_variant": names(LOSSES),
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
        "topr_positive_weight": "loss.positive",
        "topr_negative_weight": "loss.negative",
    },
    frees=("use_pg_clip_range",),
)
