"""The settings of Tinker's losses and of its cookbook that concern us, with their defaults."""

from __future__ import annotations

from trimtab.dialects.framework import Key
from trimtab.dialects.values import choice, number

SECTION = "loss_fn_config"
RELEASES = ("cookbook 0.5.8", "cookbook 0.6.1")
"""The first goes with Tinker 0.36.0, the second with 0.38.0; the names of the losses are the same."""
BEFORE, NEWEST = RELEASES
LOSSES = ("importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce", "cross_entropy", "custom")
KEYS = (
    Key("loss_fn", choice(*LOSSES), "importance_sampling"),
    Key("async_config.loss_fn", choice(*LOSSES), name="async_loss_fn", since=NEWEST),
    Key(
        "async_config.max_steps_off_policy",
        number,
        part="other",
        name="max_steps_off_policy",
        also=("max_steps_off_policy",),
    ),
    Key(f"{SECTION}.clip_low_threshold", number, part="loss"),
    Key(f"{SECTION}.clip_high_threshold", number, part="loss"),
    Key(f"{SECTION}.beta", number, part="loss"),
    Key("kl_penalty_coef", number, 0.0, part="advantage"),
    Key("kl_discount_factor", number, 0.0, part="other"),
    Key("group_size", number, part="advantage"),
)
