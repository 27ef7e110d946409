"""How prime-rl's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import UNSAID, Hints

HINTS = Hints(
    options={"algo.type": (UNSAID, "grpo", "max_rl", "opd")},
    joint=(("algo.type", "length_weighted_baseline"),),
    toggles=("kl_tau",),
    reads={"loss": ("ratio_low", "ratio_high")},
)
