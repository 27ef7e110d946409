"""Options of TRL worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name
from trimtab.dialects.frameworks.trl import LOSS_TYPES, SCALES, P

EXAMPLES = Examples(
    corrections={
        f"{P}_mode: {mode}": {f"{P}_mode": mode}
        for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
    }
    | {"off_policy_mask_threshold": {"off_policy_mask_threshold": 0.1}},
    objectives={
        f"loss_type: {name}": {"loss_type": name, "epsilon_high": 5.0 if name == "cispo" else 0.2}
        for name in LOSS_TYPES
    }
    | each_name("scale_rewards", SCALES)
    | {"normalize_advantages (RLOOConfig)": {"normalize_advantages": True}},
    refused={
        "top_entropy_quantile below 1": {"loss_type": "grpo", "top_entropy_quantile": 0.2},
        "importance_sampling_level: sequence with beta and use_bias_correction_kl": {
            "importance_sampling_level": "sequence",
            "beta": 0.1,
        },
        "RLOOConfig beta": {"normalize_advantages": True, "beta": 0.05},
        "loss_type: vespo with a sequence mode": {"loss_type": "vespo", "use_vllm": True},
    },
    passed=(
        ("num_iterations, steps_per_generation, gradient_accumulation_steps", "how the batch is split"),
        ("sync_ref_model, ref_model_*", "when the reference moves"),
        ("temperature, top_p, vllm_*", "how answers are sampled"),
    ),
)
