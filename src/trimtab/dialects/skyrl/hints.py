"""How SkyRL's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import Hints, names
from trimtab.dialects.skyrl.advantage import ESTIMATORS
from trimtab.dialects.skyrl.loss import LOSSES, REDUCTIONS

HINTS = Hints(
    options={
        "policy_loss_type": names(LOSSES),
        "loss_reduction": names(REDUCTIONS),
        "advantage_estimator": names(ESTIMATORS),
        "use_kl_loss": (False, True),  # on unless it is said, which settings of a loss alone leave open
    },
    joint=(
        ("policy_loss_type", "dppo_type"),
        ("use_kl_loss", "kl_estimator_type"),
        ("use_kl_in_reward", "kl_estimator_type"),
        ("advantage_estimator", "grpo_norm_by_std"),
    ),
    seeds={
        "max_seq_len": 1024.0,
        "cispo_eps_clip_low": 0.5,
    },  # its default leaves the lower side open, which is no number
    reads={"advantage": ("kl_loss_coef", "kl_estimator_type")},
)
