"""Options of Tinker worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples

BOUNDS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
EXAMPLES = Examples(
    corrections={
        "loss_fn: importance_sampling": {"loss_fn": "importance_sampling"},
        "loss_fn: ppo": {"loss_fn": "ppo"},
    },
    objectives={
        "loss_fn: ppo, its own thresholds": {
            "loss_fn": "ppo",
            "loss_fn_config": {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1},
        },
        "loss_fn: cispo": {"loss_fn": "cispo", "loss_fn_config": BOUNDS},
        "loss_fn: gspo": {"loss_fn": "gspo", "loss_fn_config": BOUNDS},
        "loss_fn: dro": {"loss_fn": "dro", "loss_fn_config": {"beta": 0.05}},
        "rewards centred in their group": {"loss_fn": "importance_sampling", "kl_penalty_coef": 0.0},
    },
    refused={
        "loss_fn: cispo without thresholds": {"loss_fn": "cispo"},
        "loss_fn: gspo without thresholds": {"loss_fn": "gspo"},
        "loss_fn: dro without beta": {"loss_fn": "dro"},
        "loss_fn: stable_reinforce": {"loss_fn": "stable_reinforce"},
        "async_config without a loss_fn": {"async_config": {"max_steps_off_policy": 3, "groups_per_batch": 64}},
        "loss_fn beside another of async_config": {"loss_fn": "cispo", "async_config": {"loss_fn": "ppo"}},
        "loss_fn: cross_entropy": {"loss_fn": "cross_entropy"},
        "loss_fn: custom": {"loss_fn": "custom"},
        "kl_penalty_coef": {"kl_penalty_coef": 0.1},
    },
    passed=(
        ("remove_constant_reward_groups, stream_minibatch_config", "which rows reach the step"),
        ("num_substeps, learning_rate, lora_rank", "the optimiser"),
        ("termination, rollout_error_tolerance", "the environment"),
    ),
)
