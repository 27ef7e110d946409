"""The settings of ROLL that concern us, with its defaults."""

from __future__ import annotations

from trimtab.dialects.dialect import Key
from trimtab.dialects.values import choice, flag, number, raw, text

SECTION = "train_infer_correction"
LEVELS = ("token", "segment", "geometric", "sequence")
LEVEL = choice("batch", "group", "running")
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
    *(
        Key(f"actor_train.{name}", number, part="other")
        for name in (
            "cispo_epsilon_low",
            "cispo_epsilon_high",
            "cispo_use_unified_mask",
            "tis_lower_bound",
            "tis_upper_bound",
            "topr_positive_weight",
            "topr_negative_weight",
            "kimi15_tau",
        )
    ),
    Key("actor_train.worker_cls", text, part="other"),
    Key("reward_normalization.method", text, part="other", name="reward_normalization.method"),
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
