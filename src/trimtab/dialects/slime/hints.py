"""How slime's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import Hints, names
from trimtab.dialects.slime.keys import DISTILLED, ESTIMATORS

HINTS = Hints(
    options={"advantage_estimator": names((*ESTIMATORS, DISTILLED))},
    joint=(
        ("advantage_estimator", "grpo_std_normalization", "use_opd"),
        ("use_kl_loss", "kl_loss_type", "use_unbiased_kl"),
        ("kl_coef", "kl_loss_type"),
    ),
    seeds={"kl_loss_coef": 0.1},
    toggles=("kl_coef",),
    reads={"loss": ("advantage_estimator",)},
)
