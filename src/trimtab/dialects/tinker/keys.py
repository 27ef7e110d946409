"""The settings of Tinker's losses and of its cookbook that concern us, with their defaults."""

from __future__ import annotations

from trimtab.dialects.dialect import Key
from trimtab.dialects.values import choice, number

SECTION = "loss_fn_config"
LOSSES = ("importance_sampling", "ppo", "cispo", "dro", "gspo", "stable_reinforce", "cross_entropy", "custom")
KEYS = (
    Key("loss_fn", choice(*LOSSES), "importance_sampling"),
    Key(f"{SECTION}.clip_low_threshold", number, part="loss"),
    Key(f"{SECTION}.clip_high_threshold", number, part="loss"),
    Key(f"{SECTION}.beta", number, part="loss"),
    Key("kl_penalty_coef", number, 0.0, part="advantage"),
    Key("group_size", number, part="advantage"),
)
