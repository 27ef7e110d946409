"""Options of slime worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name
from trimtab.dialects.frameworks.slime_rules import ESTIMATORS, MIS, PLACE, TRUST_REGION

RECIPE = {"use_tis": True, "custom_tis_function_path": MIS, "tis_batch_normalize": False}
EXAMPLES = Examples(
    corrections={
        "--use-tis": {"use_tis": True},
        "icepop_function": {
            "use_tis": True,
            "tis_clip_low": 0.5,
            "tis_clip": 5.0,
            "custom_tis_function_path": f"{PLACE}.icepop_function",
        },
        "mis, tis_mode truncate": {**RECIPE, "tis_mode": "truncate"},
        "mis, tis_mode clip": {**RECIPE, "tis_mode": "clip"},
        "mis, tis_mode mask": {**RECIPE, "tis_mode": "mask"},
        "mis, rs_level geometric": {
            **RECIPE,
            "use_rs": True,
            "rs_level": "geometric",
            "rs_lower_bound": 0.99,
            "rs_upper_bound": 1.01,
        },
        "--use-score-centering": {"use_score_centering": True},
        "--use-score-centering with --use-tis": {"use_score_centering": True, "use_tis": True},
        "--use-opsm": {"use_opsm": True},
        "binary_kl_trust_region_function": {
            "use_tis": True,
            "tis_binary_kl_threshold": 0.005,
            "custom_tis_function_path": f"{PLACE}.{TRUST_REGION}",
        },
    },
    objectives={
        f"advantage_estimator: {name}, loss": {"advantage_estimator": name, "eps_clip": 0.2}
        for name in ("grpo", "gspo", "cispo")
    }
    | each_name("advantage_estimator", ESTIMATORS)
    | {
        "use_opd": {"advantage_estimator": "grpo", "use_opd": True, "opd_kl_coef": 0.5},
        "advantage_estimator: on_policy_distillation (removed)": {"advantage_estimator": "on_policy_distillation"},
    },
    refused={
        "custom_tis_function_path": {"use_tis": True, "custom_tis_function_path": "my.own"},
        "custom_pg_loss_reducer_function_path": {"custom_pg_loss_reducer_function_path": "my.own"},
        "custom_loss_function_path": {"custom_loss_function_path": "my.own"},
        "use_mopd": {"advantage_estimator": "grpo", "use_mopd": True},
        "advantage_estimator: flash_reinforce": {"advantage_estimator": "flash_reinforce"},
        "use_score_centering with use_opsm": {"use_score_centering": True, "use_opsm": True},
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
    passed=(
        ("dynamic_sampling_filter_path, over_sampling_batch_size", "which rows reach the step"),
        ("value_clip, critic_*", "the critic"),
    ),
)
