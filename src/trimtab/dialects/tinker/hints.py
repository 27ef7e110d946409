"""How Tinker's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import Hints

HINTS = Hints(
    seeds={"clip_low_threshold": 0.8, "clip_high_threshold": 1.2, "beta": 0.05},
    toggles=("kl_penalty_coef",),
    reads={"loss": ("loss_fn",)},
    beside=lambda found: {} if found else {"kl_penalty_coef": 0.0},
)
