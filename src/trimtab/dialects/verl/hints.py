"""How verl's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import UNSAID, Hints, names
from trimtab.dialects.verl.advantage import ESTIMATORS
from trimtab.dialects.verl.loss import KL, LOSSES, RECIPE, REDUCTIONS

HINTS = Hints(
    options={
        "loss_mode": tuple(name for name in names(LOSSES) if name not in ("bypass_mode", RECIPE)),
        "loss_agg_mode": names(REDUCTIONS),
        "kl_loss_type": (UNSAID, *KL, *(f"{name}+" for name in KL)),
        "adv_estimator": names(ESTIMATORS),
        "kl_penalty": names(KL),
    },
    joint=(
        ("use_kl_loss", "kl_loss_type"),
        ("adv_estimator", "norm_adv_by_std_in_grpo"),
        ("use_kl_in_reward", "kl_penalty"),
    ),
    seeds={"dro_beta": 0.1, "loss_scale_factor": 1024.0},
)
