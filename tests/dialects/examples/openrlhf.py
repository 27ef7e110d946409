"""Options of OpenRLHF worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name
from trimtab.dialects.frameworks.openrlhf import ESTIMATORS

EXAMPLES = Examples(
    corrections={
        "level token, mode clip": {"is_correction_level": "token", "is_correction_mode": "clip"},
        "level token, mode mask": {"is_correction_level": "token"},
        "level seq, mode mask": {"is_correction_level": "seq", "is_correction_threshold": [0.99, 1.01]},
        "gating binary_kl": {
            "is_correction_level": "token",
            "is_correction_gating": "binary_kl",
            "is_correction_threshold": 0.1,
        },
        "gating tv": {"is_correction_level": "seq", "is_correction_gating": "tv", "is_correction_threshold": 0.1},
    },
    objectives=each_name("policy_loss_type", ("ppo", "gspo"))
    | {f"estimator: {name}": {"algo.advantage.estimator": name} for name in ESTIMATORS},
    refused={
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
    passed=(
        ("dynamic_filtering_*, train.async_queue_size, partial_rollout_enable", "which rows reach the step"),
        ("critic.*, aux_loss_coef", "the critic and the router's loss"),
        ("reward.normalize_enable", "inside the reward model"),
        ("train.micro_batch_size, dynamic_batch_enable", "how the batch is split"),
    ),
)
