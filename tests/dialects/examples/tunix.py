"""Options of Tunix worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name
from trimtab.dialects.frameworks.tunix import GROUPED, REDUCTIONS

WIDTH = {"rollout_config": {"total_generation_steps": 768}}
EXAMPLES = Examples(
    corrections={
        "training_mode: agentic_grpo": {"training_mode": "agentic_grpo", "agentic_grpo_config": {"epsilon": 0.2}},
        "sampler_is: token": {
            "training_mode": "agentic_grpo",
            "agentic_grpo_config": {"sampler_is": "token", "sampler_is_threshold": 2.0},
        },
        "use_rollout_logps: false": {
            "training_mode": "agentic_grpo",
            "agentic_grpo_config": {"use_rollout_logps": False},
        },
    },
    objectives={
        "loss_algo: gspo-token": {"grpo_config": {"loss_algo": "gspo-token", "epsilon": 3e-3, "beta": 0.0}},
        "policy_loss_fn: ppo": {"ppo_config": {"epsilon": 0.2, "gae_lambda": 0.95, "beta": 0.08}},
    }
    | {f"loss_agg_mode: {name}": {"grpo_config": {"loss_agg_mode": name, "beta": 0.0}, **WIDTH} for name in REDUCTIONS}
    | each_name("advantage_estimator", GROUPED),
    refused={
        "seq_logprob_error_threshold": {"agentic_grpo_config": {"seq_logprob_error_threshold": 1.5}},
        "truncated_importance_sampling_type": {
            "agentic_grpo_config": {"truncated_importance_sampling_type": "seq-mask-tis"}
        },
        "policy_loss_fn: mine": {"grpo_config": {"policy_loss_fn": "mine"}},
        "advantage_estimator: mine": {"grpo_config": {"advantage_estimator": "mine"}},
        "overlong_buffer": {"grpo_config": {"advantage_estimator": "grpo", "overlong_buffer": {"enable": True}}},
        "agentic_grpo_config beside grpo_config": {
            "agentic_grpo_config": {"sampler_is": "token"},
            "grpo_config": {"beta": 0.0},
        },
    },
    passed=(
        ("off_policy_steps, overlong_filter, filter_statuses", "which rows reach the step"),
        ("clip_range_value, value_loss_fn", "the critic"),
        ("force_compute_kl", "what is logged"),
    ),
)
