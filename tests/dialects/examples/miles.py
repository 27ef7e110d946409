"""Options of miles worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name
from trimtab.dialects.frameworks.miles import ESTIMATORS, PLACE
from trimtab.dialects.frameworks.slime_rules import DISTILLED, MIS, TRUST_REGION
from trimtab.dialects.frameworks.slime_rules import PLACE as SLIME

RECIPE = {"use_tis": True, "custom_tis_function_path": MIS}
EXAMPLES = Examples(
    corrections={
        "--use-tis": {"use_tis": True},
        "--use-rollout-logprobs": {"use_rollout_logprobs": True},
        "icepop_function": {
            "use_tis": True,
            "tis_clip_low": 0.5,
            "tis_clip": 5.0,
            "custom_tis_function_path": f"{PLACE}.icepop_function",
        },
        "mis, tis_mode truncate": {**RECIPE, "tis_mode": "truncate"},
        "mis, tis_mode mask": {**RECIPE, "tis_mode": "mask"},
        "mis, rs_level geometric": {
            **RECIPE,
            "use_rs": True,
            "rs_level": "geometric",
            "rs_lower_bound": 0.99,
            "rs_upper_bound": 1.001,
        },
        "--use-opsm": {"use_opsm": True},
        "--mask-offpolicy-in-partial-rollout": {
            "use_tis": True,
            "partial_rollout": True,
            "mask_offpolicy_in_partial_rollout": True,
        },
    },
    objectives={
        f"advantage_estimator: {name}, loss": {"advantage_estimator": name, "eps_clip": 0.2}
        for name in ("grpo", "gspo")
    }
    | each_name("advantage_estimator", (*ESTIMATORS, DISTILLED)),
    refused={
        "use_score_centering": {"use_score_centering": True},
        "custom_tis_function_path": {"use_tis": True, "custom_tis_function_path": "my.own"},
        "custom_tis_function_path of slime": {
            "use_tis": True,
            "custom_tis_function_path": f"{SLIME}.{TRUST_REGION}",
        },
        "custom_loss_function_path": {"custom_loss_function_path": "my.own"},
        "custom_pg_loss_reducer_function_path": {"custom_pg_loss_reducer_function_path": "my.own"},
        "advantage_estimator: cispo": {"advantage_estimator": "cispo"},
        "use_opd": {"advantage_estimator": "grpo", "use_opd": True},
        "rewards_normalization: false with grpo": {"advantage_estimator": "grpo", "rewards_normalization": False},
    },
    passed=(
        ("observe_training_entropy", "what is logged"),
        ("max_weight_staleness, dynamic_sampling_filter_path", "which rows reach the step"),
        ("use_routing_replay, use_rollout_routing_replay, use_rollout_indexer_replay", "how the model is run"),
        ("value_clip, critic_*", "the critic"),
    ),
)
