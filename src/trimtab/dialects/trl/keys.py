"""The settings of TRL that concern us, with its defaults."""

from __future__ import annotations

from trimtab.dialects.framework import Given, Key, Part
from trimtab.dialects.parts import refuse
from trimtab.dialects.values import choice, flag, number, numbers, raw, whole

MODES: dict[str, tuple[str, bool]] = {
    "token_truncate": ("token", False),
    "token_mask": ("token", True),
    "sequence_truncate": ("sequence", False),
    "sequence_mask": ("sequence", True),
}
"""Mode → what the ratio is gathered over, and whether it is zeroed outside the bounds."""
P = "vllm_importance_sampling"
CONFIGS: dict[str, frozenset[str]] = {
    "RLOOConfig": frozenset(
        (
            *("use_vllm", "epsilon", "epsilon_high", "beta", "max_completion_length", "reward_weights"),
            *("normalize_advantages", "reward_clip_range", "mask_truncated_completions"),
        )
    ),
    "AsyncGRPOConfig": frozenset(("max_staleness", "epsilon", "epsilon_high", "max_completion_length")),
}
"""Of the configs beside GRPOConfig, the keys below that each has; both have keys that it has not, and are known by them."""
LOSS_TYPES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "luspo", "vespo")
KEYS = (
    Key(f"{P}_correction", flag, True),
    Key(f"{P}_mode", choice(*MODES), "sequence_mask"),
    Key(f"{P}_clip_max", number, 3.0, null="open"),
    Key(f"{P}_clip_min", number),
    Key(f"{P}_cap", number, legacy=True),
    Key("use_vllm", flag, False),
    Key("off_policy_mask_threshold", number),
    Key("max_staleness", whole),
    Key("loss_type", choice(*LOSS_TYPES), "dapo", part="loss"),
    Key("epsilon", number, 0.2, part="loss"),
    Key("epsilon_high", number, part="loss"),
    Key("delta", number, part="loss"),
    Key("beta", number, 0.0, part="loss"),
    Key("use_bias_correction_kl", flag, True, part="loss"),
    Key("importance_sampling_level", choice("token", "sequence"), "token", part="loss"),
    Key("max_completion_length", number, 512.0, part="other", null="open"),
    Key("sapo_temperature_pos", number, 1.0, part="loss"),
    Key("sapo_temperature_neg", number, 1.05, part="loss"),
    *(
        Key(f"vespo_{name}_{sign}", number, default, part="loss")
        for name, sign, default in (
            ("k", "pos", 2.0),
            ("lambda", "pos", 3.0),
            ("k", "neg", 3.0),
            ("lambda", "neg", 2.0),
        )
    ),
    Key("top_entropy_quantile", number, 1.0, part="loss"),
    Key("entropy_coef", number, 0.0, part="loss"),
    Key("use_adaptive_entropy", flag, False, part="loss"),
    Key("entropy_target", number, 0.2, part="other"),
    *(
        Key(f"entropy_coef_{name}", number, default, part="other")
        for name, default in (("min", 0.0), ("max", 1.0), ("delta", 0.005))
    ),
    Key("scale_rewards", raw, "group", part="advantage"),
    Key(
        "multi_objective_aggregation",
        choice("sum_then_normalize", "normalize_then_sum"),
        "sum_then_normalize",
        part="advantage",
    ),
    Key("reward_weights", numbers, part="other"),
    Key("normalize_advantages", flag, False, part="advantage"),
    Key("reward_clip_range", numbers, part="advantage"),
    Key("mask_truncated_completions", flag, False, part="loss"),
)


def is_rloo(given: Given) -> bool:
    """Whether these are settings of RLOOConfig, which alone has these keys."""
    return given.has("normalize_advantages", "reward_clip_range")


def is_async(given: Given) -> bool:
    """Whether these are settings of AsyncGRPOConfig, which alone has this key."""
    return given.has("max_staleness")


def refuse_absent(given: Given, part: Part) -> None:
    """A ConfigError that names the keys of a part that the user's config does not have."""
    name = "RLOOConfig" if is_rloo(given) else "AsyncGRPOConfig" if is_async(given) else ""
    if name:
        absent = [key for key in given.values if given.part_of(key) == part and key not in CONFIGS[name]]
        refuse(
            absent, f"TRL {name} with {', '.join(absent)}", f"{name} has no such key, and TRL stops on it. Leave it out"
        )
