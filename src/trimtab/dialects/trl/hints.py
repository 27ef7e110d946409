"""How TRL's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import UNSAID, Hints, names
from trimtab.dialects.trl.advantage import SCALES

HINTS = Hints(
    options={"scale_rewards": names(SCALES), "normalize_advantages": (UNSAID, False, True)},
    joint=(
        ("loss_type", "importance_sampling_level"),
        ("beta", "use_bias_correction_kl"),
        ("scale_rewards", "multi_objective_aggregation", "normalize_advantages"),
    ),
    seeds={"epsilon_high": 5.0, "reward_weights": (1.0,)},
    toggles=("beta", "entropy_coef"),
)
