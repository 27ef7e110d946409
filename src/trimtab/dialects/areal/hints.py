"""How AReaL's readers of losses and advantages are searched."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.hints import UNSAID, Hints
from trimtab.dialects.values import number

_LEVELS = (UNSAID, "batch", "group", None)
_NORMS = ("reward_norm", "adv_norm")


def _group_sizes(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Left out, group_size is 1 and every row its own group: the number of answers stands under `gconfig`."""
    grouped = [
        name for name in _NORMS if "group" in (settings.get(f"{name}.{level}_level") for level in ("mean", "std"))
    ]
    return {f"{name}.group_size": "${gconfig.n_samples}" for name in grouped}


HINTS = Hints(
    options={f"{section}.{name}": _LEVELS for section in _NORMS for name in ("mean_level", "std_level")},
    joint=(
        ("use_cispo_loss", "use_sapo_loss", "importance_sampling_level"),
        ("reward_norm.mean_level", "reward_norm.std_level", "reward_norm.mean_leave1out", "mask_no_eos_with_zero"),
        ("adv_norm.mean_level", "adv_norm.std_level", "adv_norm.mean_leave1out"),
        ("kl_ctl", "kl_estimator"),
    ),
    seeds={"overlong_tokens": 100, "overlong_penalty_factor": 1.0, "eps_clip_higher": 0.2},
    kinds={"gae_lambda": number},
    toggles=("kl_ctl",),
    beside=_group_sizes,
)
