"""Options of NeMo-RL worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples
from trimtab.dialects.frameworks.nemo_rl import T

EXAMPLES = Examples(
    corrections={
        f"{T}_type: {kind}": {
            "use_importance_sampling_correction": True,
            f"{T}_type": kind,
            f"{T}_ratio": upper,
            f"{T}_ratio_min": lower,
        }
        for kind, lower, upper in (("tis", None, 2.0), ("icepop", 0.5, 5.0), ("seq-mask-tis", 0.99, 1.01))
    }
    | {"seq_logprob_error_threshold": {"grpo": {"seq_logprob_error_threshold": 1.5}}},
    objectives={
        "PPO": {"loss_fn": {"ratio_clip_min": 0.2, "ratio_clip_max": 0.28}},
        "use_cispo": {"loss_fn": {"use_cispo": True}},
        "disable_ppo_ratio": {"loss_fn": {"disable_ppo_ratio": True}},
        "sequence_level_importance_ratios": {
            "loss_fn": {"sequence_level_importance_ratios": True, "token_level_loss": False}
        },
    }
    | {
        f"adv_estimator: {name}": {"grpo": {"adv_estimator": {"name": name, "reward_weights": [1.0, 0.5]}}}
        for name in ("grpo", "gdpo", "reinforce_plus_plus", "gae", "raw_reward", "opd")
    },
    refused={
        "positive_example_nll_weight": {"loss_fn": {"positive_example_nll_weight": 0.1}},
        "reference_policy_kl_type: k2 in the loss": {
            "loss_fn": {"reference_policy_kl_penalty": 0.01, "reference_policy_kl_type": "k2"}
        },
        "truncated_importance_sampling_type without the correction": {f"{T}_type": "tis", f"{T}_ratio": 2.0},
        "use_on_policy_kl_approximation": {
            "loss_fn": {"reference_policy_kl_penalty": 0.01, "use_on_policy_kl_approximation": True}
        },
        "use_kl_in_reward with reinforce_plus_plus": {
            "grpo": {"adv_estimator": {"name": "reinforce_plus_plus"}},
            "loss_fn": {"use_kl_in_reward": True, "reference_policy_kl_penalty": 0.01},
        },
        "truncated_importance_sampling_ratio without a type": {"truncated_importance_sampling_ratio": 2.0},
    },
    passed=(
        ("async_grpo.max_trajectory_age_steps, use_dynamic_sampling, overlong_filtering", "which rows reach the step"),
        ("policy.*, but logprob_estimation and worker_cls_fqn; value.*", "the models"),
        ("reward_shaping, reward_scaling", "the reward function"),
    ),
)
