"""Options of ms-swift worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name
from trimtab.dialects.frameworks.swift import P

EXAMPLES = Examples(
    corrections={
        f"{P}_mode: {mode}": {f"{P}_mode": mode}
        for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
    }
    | {"off_policy_sequence_mask_delta": {"off_policy_sequence_mask_delta": 0.1}},
    objectives={
        f"loss_type: {name}": {"loss_type": name, "epsilon_high": 5.0 if name == "cispo" else 0.2}
        for name in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "fipo")
    }
    | each_name("advantage_estimator", ("grpo", "rloo", "reinforce_plus_plus"))
    | {
        "scale_rewards: gdpo": {"scale_rewards": "gdpo", "reward_weights": [1.0, 0.5]},
        "teacher_model": {"advantage_estimator": "grpo", "teacher_model": "a/teacher", "teacher_kl_coef": 0.5},
    },
    refused={
        "loss_type: real": {"loss_type": "real"},
        "loss_type: fipo at sequence": {"loss_type": "fipo", "importance_sampling_level": "sequence"},
        "loss_type: sapo at sequence_token": {"loss_type": "sapo", "importance_sampling_level": "sequence_token"},
        "top_entropy_quantile below 1": {"loss_type": "grpo", "top_entropy_quantile": 0.2},
        "sdar_loss_coef": {"loss_type": "grpo", "sdar_loss_coef": 0.1},
        "advantage_reweight: rlsd": {"advantage_estimator": "grpo", "advantage_reweight": "rlsd"},
        "kl_in_reward with beta": {"advantage_estimator": "rloo", "beta": 0.04},
    },
    passed=(
        ("dynamic_sample, max_resample_times", "which rows reach the step"),
        ("soft_max_length, soft_cache_length", "a reward function"),
        ("sync_ref_model, chord_*", "when the reference moves, and a supervised loss beside"),
        ("log_entropy, log_completions", "what is logged"),
    ),
)
