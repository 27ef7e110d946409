"""The settings of prime-rl that concern us, with its defaults."""

from __future__ import annotations

from trimtab.dialects.framework import Key
from trimtab.dialects.values import choice, flag, nested, number, text

SECTION = "trainer.loss"
ALGO = "orchestrator.algo"
CAP = 1e4
"""Where the ratio of an accepted token is held, its gradient kept."""
KEYS = (
    Key(f"{SECTION}.type", choice("ipo", "icepop", "ppo", "cispo", "custom", "default"), "ipo"),
    Key(f"{SECTION}.eps", number),
    Key(f"{SECTION}.ratio_low", number),
    Key(f"{SECTION}.ratio_high", number),
    Key(f"{SECTION}.score_centering", flag, False),
    Key(f"{SECTION}.max_importance_ratio", number, CAP, part="loss"),
    Key(f"{SECTION}.adv_tau", number, 1.0, part="loss"),
    Key(f"{SECTION}.dppo_mask_low", number, 0.2),
    Key(f"{SECTION}.dppo_mask_high", number, 0.2),
    Key(f"{SECTION}.ipo_threshold", number, 0.1),
    Key(f"{SECTION}.kl_tau", number, 1e-3, part="loss"),
    Key(f"{SECTION}.ratio_type", choice("token", "sequence"), "token", legacy=True),
    *(
        Key(f"{SECTION}.{name}", number, default, legacy=True)
        for name, default in (
            ("token_mask_low", 0.125),
            ("token_mask_high", 8.0),
            ("geo_mask_low", 0.1),
            ("geo_mask_high", 10.0),
            ("sequence_mask_low", 0.0),
            ("sequence_mask_high", 100.0),
            ("sequence_clip_high", 10.0),
        )
    ),
    *(Key(f"orchestrator.train.sampling.{name}", number, part="other") for name in ("top_p", "top_k")),
    Key(
        f"{ALGO}.type",
        text,
        "grpo",
        part="advantage",
        name="algo.type",
        also=("orchestrator.advantage.type", "algo.type", "advantage.type"),
    ),
    Key(
        f"{ALGO}.length_penalty",
        nested,
        part="advantage",
        also=(
            "orchestrator.advantage.length_penalty",
            "orchestrator.advantage.length_shaping",
            f"{ALGO}.length_shaping",
        ),
    ),
    Key(
        f"{ALGO}.length_weighted_baseline",
        flag,
        False,
        part="advantage",
        also=("orchestrator.advantage.length_weighted_mean",),
    ),
)
