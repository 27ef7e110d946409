"""How ms-swift's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import UNSAID, Hints, names
from trimtab.dialects.swift.keys import TEACHER
from trimtab.dialects.trl.advantage import SCALES

HINTS = Hints(
    options={
        "scale_rewards": (*names(SCALES), "gdpo"),
        "kl_in_reward": (UNSAID, False, True),
        "teacher_model": (UNSAID, TEACHER),
    },
    joint=(
        ("loss_type", "importance_sampling_level"),
        ("advantage_estimator", "scale_rewards", "kl_in_reward", "teacher_model"),
    ),
    seeds={"epsilon_high": 5.0, "reward_weights": (1.0,)},
    toggles=("beta",),
)
