"""How AReaL's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import UNSAID, Hints
from trimtab.dialects.values import number

_LEVELS = (UNSAID, "batch", "group", None)
HINTS = Hints(
    options={
        f"{section}.{name}": _LEVELS for section in ("reward_norm", "adv_norm") for name in ("mean_level", "std_level")
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
)
