"""The settings of ROLL that concern us, with its defaults."""

from __future__ import annotations

from typing import Any

from trimtab.dialects.framework import Given, Key
from trimtab.dialects.values import choice, flag, number, raw, text

SECTION = "train_infer_correction"
LEVELS = ("token", "segment", "geometric", "sequence")
LEVEL = choice("batch", "group", "running")
NORM = "reward_normalization"
"""The section by which the agentic pipelines normalise rewards; RLVR's keys are at the top."""
INERT: dict[str, Any] = {
    "cispo_epsilon_low": 0.1,
    "cispo_epsilon_high": 0.1,
    "cispo_use_unified_mask": 0.0,
    "tis_lower_bound": 0.0,
    "tis_upper_bound": 1.0,
    "kimi15_tau": 0.1,
}
"""Settings of pg_variant that are looked up in a dataclass without them, and the values that hold whatever is written."""
KEYS = (
    Key(f"{SECTION}.is_weight.enabled", flag, False),
    Key(f"{SECTION}.is_weight.weight_type", choice(*LEVELS), "token"),
    Key(f"{SECTION}.is_weight.upper_bound", number, 1.2, null="open"),
    Key(f"{SECTION}.is_weight.detach", flag, True),
    Key(f"{SECTION}.filters", raw),
    Key("enable_old_logprobs_recompute", flag, False),
    Key("force_disable_old_logprobs_recompute", flag, False),
    Key("num_return_sequences_in_group", number, part="other", also=("train_env_manager.group_size",)),
    Key("loss_agg_mode", text, "seq-mean-token-mean", part="loss"),
    Key("pg_clip", number, 0.2, part="loss"),
    Key("use_pg_clip_range", flag, False, part="loss"),
    Key("pg_clip_low", number, 0.2, part="loss"),
    Key("pg_clip_high", number, 0.2, part="loss"),
    Key("dual_clip_loss", flag, False, part="loss"),
    Key("importance_sampling", choice("token", "seq"), "token", part="loss"),
    Key("ratio_type", choice("token", "segment"), "token", part="loss"),
    Key("actor_train.pg_variant", text, part="loss"),
    Key("use_kl_loss", flag, False, part="loss"),
    Key("kl_loss_coef", number, 0.0, part="loss"),
    Key("entropy_loss_coef", number, 0.0, part="loss"),
    Key("rl_loss_coef", number, 1.0, part="loss"),
    Key("postive_loss_coef", number, 0.0, part="loss"),
    Key("use_topr_neg_loss_coef", number, 0.0, part="loss"),
    Key("difficulty_loss_weight", flag, False, part="loss"),
    Key("length_loss_weight", flag, False, part="loss"),
    Key("actor_train.topr_positive_weight", number, 1.0, part="loss"),
    Key("actor_train.topr_negative_weight", number, 1.0, part="loss"),
    *(Key(f"actor_train.{name}", number, part="other") for name in INERT),
    Key("actor_train.worker_cls", text, part="other"),
    Key("sequence_length", number, part="other"),
    Key("max_len_mask", flag, False, part="other"),
    Key("difficulty_mask", flag, False, part="other"),
    Key("difficulty_low_threshold", number, 0.0, part="other"),
    Key("difficulty_high_threshold", number, 1.0, part="other"),
    Key("error_max_len_clip", flag, False, part="other"),
    Key("adv_estimator", text, "gae", part="advantage"),
    Key("gamma", number, 1.0, part="advantage"),
    Key("lambd", number, 0.95, part="advantage"),
    Key("norm_mean_type", LEVEL, part="advantage"),
    Key("norm_std_type", LEVEL, part="advantage"),
    *(
        Key(f"{NORM}.{name}", kind, default, part="advantage", name=f"{NORM}.{name}")
        for name, kind, default in (
            ("grouping", text, "state"),
            ("method", text, "identity"),
            ("norm_mean_type", choice("batch", "group"), None),
            ("norm_std_type", choice("batch", "group"), None),
        )
    ),
    Key("reward_clip", number, part="advantage"),
    Key("whiten_rewards", flag, False, part="advantage"),
    Key("whiten_advantages", flag, False, part="advantage"),
    Key("advantage_clip", number, part="advantage"),
    Key("use_reward_scaling", flag, False, part="advantage"),
    Key("add_len_reward", flag, False, part="advantage"),
    Key("add_token_level_kl", flag, False, part="advantage"),
    Key("init_kl_coef", number, 0.2, part="advantage"),
    Key("kl_penalty", choice("kl", "abs", "mse", "k3", "full"), "kl", part="advantage"),
    Key("target_kl", number, part="advantage"),
)


def has_environments(given: Given) -> bool:
    """Whether the file is for the agentic pipelines, which have environments where RLVR has rewards."""
    sections = ("train_env_manager", "val_env_manager", "custom_envs", NORM)
    return any(map(given.has_section, sections)) or given["ratio_type"] == "segment"


def uses_variant(given: Given) -> bool:
    """Whether the worker looks at pg_variant: only the policy-gradient workers do, and neither pipeline takes one by default.

    What names no worker and is no whole file is read as meant.
    """
    worker = given["worker_cls"]
    if worker:
        return "_pg_worker" in worker or not worker.startswith("roll.")
    return given.builds_on_others or not (given.has_section("exp_name") or given.has_section("pretrain"))
