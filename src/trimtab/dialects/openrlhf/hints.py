"""How OpenRLHF's readers of losses and advantages are searched."""

from __future__ import annotations

from trimtab.dialects.hints import Hints, names
from trimtab.dialects.openrlhf.advantage import ESTIMATORS

HINTS = Hints(
    options={"estimator": names(ESTIMATORS)},
    joint=(("init_coef", "use_loss", "kl.estimator", "unbiased_gradient"), ("estimator", "no_std_norm")),
    toggles=("init_coef", "overlong_buffer_len"),
    reads={"loss": ("init_coef",)},
)
