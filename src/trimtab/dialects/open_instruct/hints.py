"""How open-instruct's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import UNSAID, Hints
from trimtab.dialects.values import number

HINTS = Hints(
    options={"loss_fn": (UNSAID, "dapo", "cispo"), "loss_denominator": (UNSAID, 1024.0)},
    joint=(("beta", "kl_estimator"),),
    kinds={"loss_denominator": number},
    toggles=("beta",),
)
