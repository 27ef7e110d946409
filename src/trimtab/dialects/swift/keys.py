"""The settings of ms-swift that concern us, with its defaults."""

from __future__ import annotations

from trimtab.dialects.framework import Key
from trimtab.dialects.values import choice, flag, number, numbers, raw, text

P = "rollout_importance_sampling"
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
TEACHER = "TEACHER"
"""Where a writing names a teacher it does not know."""
KEYS = (
    Key(f"{P}_mode", choice(*MODES)),
    Key(f"{P}_threshold", number, 2.0),
    Key("off_policy_sequence_mask_delta", number),
    Key("use_vllm", flag, False, part="other"),
    Key("log_rollout_offpolicy_metrics", flag, False),
    Key(
        "loss_type",
        choice("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "fipo", "real"),
        "grpo",
        part="loss",
        null="unsaid",
    ),
    Key("epsilon", number, 0.2, part="loss"),
    Key("epsilon_high", number, part="loss"),
    Key("delta", number, part="loss"),
    Key("beta", number, 0.04, part="loss", null="unsaid"),
    Key("importance_sampling_level", choice("token", "sequence", "sequence_token"), "token", part="loss"),
    Key("max_completion_length", number, 512.0, part="other"),
    Key("tau_pos", number, 1.0, part="loss"),
    Key("tau_neg", number, 1.05, part="loss"),
    Key("advantage_estimator", choice("grpo", "rloo", "reinforce_plus_plus"), "grpo", part="advantage"),
    Key("scale_rewards", raw, part="advantage"),
    Key("reward_weights", numbers, part="other"),
    Key("kl_in_reward", flag, part="advantage"),
    Key("top_entropy_quantile", number, 1.0, part="loss"),
    Key("real_tau", number, 0.5, part="loss"),
    Key("fipo_decay_rate", number, 32.0, part="loss"),
    Key("fipo_clip_range", number, 0.2, part="loss", null="open"),
    Key("fipo_clip_high_only", flag, True, part="loss"),
    Key("fipo_safety_threshold", number, 4.0, part="loss", null="open"),
    Key("sdar_loss_coef", number, 0.0, part="loss"),
    Key("advantage_reweight", text, part="advantage"),
    Key("chord_sft_dataset", raw, part="loss"),
    Key("teacher_model", raw, part="advantage"),
    Key("teacher_model_server", raw, part="advantage"),
    Key("teacher_kl_coef", number, 1.0, part="advantage"),
    Key("overlong_filter", flag, False, part="loss"),
)
