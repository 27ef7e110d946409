"""What is not read, by framework: options that are refused by name, and options that change none of our numbers.

What is read stands in the keys of each dialect and in the examples.
"""

from __future__ import annotations

from typing import Any

Rows = dict[str, dict[str, Any]]

REFUSED: dict[str, Rows] = {
    "verl": {
        "adv_estimator: optimal_token_baseline": {"adv_estimator": "optimal_token_baseline"},
        "adv_estimator: tir_optimal_token_baseline": {"adv_estimator": "tir_optimal_token_baseline"},
        "use_pf_ppo: true": {"adv_estimator": "gae", "use_pf_ppo": True},
        "kl_penalty: full": {"algorithm": {"use_kl_in_reward": True, "kl_penalty": "full"}},
        "kl_loss_type: full": {"use_kl_loss": True, "kl_loss_type": "full"},
        "rollout_rs: seq_max_k1": {"rollout_rs": "seq_max_k1", "rollout_rs_threshold": 2.0},
    },
    "areal": {
        "metric: binary_kl": {"metric": "binary_kl", "upper": 0.1},
        "m2_threshold with rejection_sampling": {"actor": {"m2_threshold": 0.1, "rejection_sampling": {"upper": 2.0}}},
        "gae_lambda: a function": {"actor": {"gae_lambda": "areal.utils.functional.vapo_length_adaptive_gae"}},
        "gae_timestep_unit: turn": {"actor": {"gae_timestep_unit": "turn"}},
        "use_sapo_loss with use_decoupled_loss": {"actor": {"use_sapo_loss": True, "use_decoupled_loss": True}},
    },
    "skyrl": {
        "advantage_batch_normalize: true": {"advantage_estimator": "grpo", "advantage_batch_normalize": True},
        "policy_loss_type: dppo with tis_ratio_type": {
            "trainer": {"algorithm": {"policy_loss_type": "dppo", "off_policy_correction": {"tis_ratio_type": "token"}}}
        },
    },
    "trl": {
        "top_entropy_quantile below 1": {"loss_type": "grpo", "top_entropy_quantile": 0.2},
        "importance_sampling_level: sequence with beta and use_bias_correction_kl": {
            "importance_sampling_level": "sequence",
            "beta": 0.1,
        },
        "RLOOConfig beta": {"normalize_advantages": True, "beta": 0.05},
        "loss_type: vespo with a sequence mode": {"loss_type": "vespo", "use_vllm": True},
    },
    "openrlhf": {
        "reward.stop_properly_penalty_coef": {
            "algo.advantage.estimator": "rloo",
            "reward.stop_properly_penalty_coef": 0.5,
        },
        "n_samples_per_prompt: 1 with a group baseline": {
            "algo.advantage.estimator": "rloo",
            "rollout.n_samples_per_prompt": 1,
        },
        "is_correction_mode clip at level seq": {"is_correction_level": "seq", "is_correction_mode": "clip"},
        "a lower bound for binary_kl or tv": {"is_correction_level": "token", "is_correction_gating": "tv"},
    },
    "ms-swift": {
        "loss_type: real": {"loss_type": "real"},
        "loss_type: fipo": {"loss_type": "fipo"},
        "loss_type: sapo at sequence_token": {"loss_type": "sapo", "importance_sampling_level": "sequence_token"},
        "top_entropy_quantile below 1": {"loss_type": "grpo", "top_entropy_quantile": 0.2},
        "sdar_loss_coef": {"loss_type": "grpo", "sdar_loss_coef": 0.1},
        "advantage_reweight: rlsd": {"advantage_estimator": "grpo", "advantage_reweight": "rlsd"},
        "kl_in_reward with beta": {"advantage_estimator": "rloo", "beta": 0.04},
    },
    "slime": {
        "custom_tis_function_path": {"use_tis": True, "custom_tis_function_path": "my.own"},
        "custom_pg_loss_reducer_function_path": {"custom_pg_loss_reducer_function_path": "my.own"},
        "custom_loss_function_path": {"custom_loss_function_path": "my.own"},
        "advantage_estimator: on_policy_distillation": {"advantage_estimator": "on_policy_distillation"},
        "use_opd": {"advantage_estimator": "grpo", "use_opd": True},
        "kl_coef with reinforce_plus_plus_baseline": {
            "advantage_estimator": "reinforce_plus_plus_baseline",
            "kl_coef": 0.1,
        },
        "rewards_normalization: false with grpo": {"advantage_estimator": "grpo", "rewards_normalization": False},
        "use_unbiased_kl with low_var_kl": {
            "use_kl_loss": True,
            "kl_loss_coef": 0.1,
            "use_unbiased_kl": True,
            "kl_loss_type": "low_var_kl",
        },
    },
    "nemo-rl": {
        "positive_example_nll_weight": {"loss_fn": {"positive_example_nll_weight": 0.1}},
        "use_on_policy_kl_approximation": {
            "loss_fn": {"reference_policy_kl_penalty": 0.01, "use_on_policy_kl_approximation": True}
        },
        "adv_estimator: opd": {"grpo": {"adv_estimator": {"name": "opd"}}},
        "use_kl_in_reward with reinforce_plus_plus": {
            "grpo": {"adv_estimator": {"name": "reinforce_plus_plus"}},
            "loss_fn": {"use_kl_in_reward": True, "reference_policy_kl_penalty": 0.01},
        },
        "truncated_importance_sampling_ratio without a type": {"truncated_importance_sampling_ratio": 2.0},
    },
    "roll": {
        "is_weight.detach: false": {"is_weight": {"enabled": True, "detach": False}},
        "pg_variant: topr": {"actor_train": {"pg_variant": "topr"}},
        "postive_loss_coef": {"pg_clip": 0.2, "postive_loss_coef": 0.1},
        "use_topr_neg_loss_coef": {"pg_clip": 0.2, "use_topr_neg_loss_coef": 0.1},
        "difficulty_loss_weight": {"pg_clip": 0.2, "difficulty_loss_weight": True},
        "length_loss_weight": {"pg_clip": 0.2, "length_loss_weight": True},
        "adv_estimator: gigpo": {"adv_estimator": "gigpo"},
        "norm_mean_type: running": {"adv_estimator": "reinforce", "norm_mean_type": "running"},
        "norm_std_type: group without group means": {
            "adv_estimator": "reinforce",
            "norm_mean_type": "batch",
            "norm_std_type": "group",
        },
        "whiten_rewards": {"adv_estimator": "reinforce", "whiten_rewards": True},
        "use_reward_scaling": {"adv_estimator": "reinforce", "use_reward_scaling": True},
        "add_len_reward": {"adv_estimator": "reinforce", "add_len_reward": True},
        "kl_penalty: full": {"adv_estimator": "gae", "add_token_level_kl": True, "kl_penalty": "full"},
    },
    "prime-rl": {
        "algo.length_penalty": {"orchestrator": {"algo": {"type": "grpo", "length_penalty": "linear"}}},
        "algo.type: rae": {"orchestrator": {"algo": {"type": "rae"}}},
        "algo.type: hierarchical_grpo": {"orchestrator": {"algo": {"type": "hierarchical_grpo"}}},
        "algo.type: opd": {"orchestrator": {"algo": {"type": "opd"}}},
        "algo.type: sft": {"orchestrator": {"algo": {"type": "sft"}}},
        "algo.type: echo": {"orchestrator": {"algo": {"type": "echo"}}},
        "kl_tau with ratio_type sequence (removed)": {
            "trainer": {"loss": {"ratio_type": "sequence", "kl_tau": 0.1}},
        },
    },
    "open-instruct": {
        "use_icepop: true (in no release)": {"use_icepop": True},
        "loss_fn: dppo": {"loss_fn": "dppo"},
        "rho bounds without 1": {"use_rho_correction": True, "rho_clamp_upper_bound": 0.5},
    },
}
"""Option → settings that `read` refuses; the error says why and what to do."""

PASSED: dict[str, tuple[tuple[str, str], ...]] = {
    "verl": (
        ("filter_groups, max_off_policy_threshold", "which rows reach the step"),
        ("critic.*, value_loss, cliprange_value", "the critic"),
        ("ppo_epochs, ppo_mini_batch_size, use_dynamic_bsz, shuffle", "how the batch is split"),
        ("calculate_entropy, calculate_sum_pi_squared, use_fused_kernels", "what is computed beside"),
    ),
    "areal": (
        ("max_head_offpolicyness, max_concurrent_rollouts", "which rows are admitted"),
        ("ppo_n_minibatches, dynamic_sampling", "how the batch is split"),
        ("critic.*, log_agent_stats", "the critic, and what is logged"),
        ("group_size", "groups come as `group`"),
    ),
    "skyrl": (
        ("dynamic_sampling, fully_async.max_staleness_steps", "which rows reach the step"),
        ("value_clip, critic.*", "the critic"),
        ("kl_ctrl.*", "how the coefficient moves between steps"),
        ("clip_cov.*, kl_cov.*", "losses that are named as broken"),
    ),
    "trl": (
        ("num_iterations, steps_per_generation, gradient_accumulation_steps", "how the batch is split"),
        ("sync_ref_model, ref_model_*", "when the reference moves"),
        ("temperature, top_p, vllm_*", "how answers are sampled"),
    ),
    "openrlhf": (
        ("dynamic_filtering_*, train.async_queue_size, partial_rollout_enable", "which rows reach the step"),
        ("critic.*, aux_loss_coef", "the critic and the router's loss"),
        ("reward.normalize_enable", "inside the reward model"),
        ("train.micro_batch_size, dynamic_batch_enable", "how the batch is split"),
    ),
    "ms-swift": (
        ("dynamic_sample, max_resample_times", "which rows reach the step"),
        ("soft_max_length, soft_cache_length", "a reward function"),
        ("sync_ref_model, chord_*", "when the reference moves, and a supervised loss beside"),
        ("log_entropy, log_completions", "what is logged"),
    ),
    "slime": (
        ("get_mismatch_metrics", "what is logged"),
        ("dynamic_sampling_filter_path, over_sampling_batch_size", "which rows reach the step"),
        ("value_clip, critic_*", "the critic"),
    ),
    "nemo-rl": (
        ("async_grpo.max_trajectory_age_steps, use_dynamic_sampling, overlong_filtering", "which rows reach the step"),
        ("policy.*, value.*", "the models"),
        ("reward_shaping, reward_scaling", "the reward function"),
    ),
    "roll": (
        ("async_generation_ratio, max_len_mask, difficulty_mask", "which rows reach the step"),
        ("value_clip, critic_warmup", "the critic"),
        ("kl_horizon", "how the coefficient moves between steps"),
    ),
    "prime-rl": (
        ("max_off_policy_steps, filters", "which rows reach the step"),
        ("loss for sft, opd", "components other than rl"),
    ),
    "open-instruct": (
        ("async_steps, active_sampling, mask_truncated_completions", "which rows reach the step"),
        ("alpha, ref_policy_update_freq", "when the reference moves"),
        ("use_liger_grpo_loss, record_entropy", "how it is computed, and what is logged"),
    ),
}
"""Options that change none of our numbers, and what they are about."""
