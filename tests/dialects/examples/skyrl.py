"""Options of SkyRL worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name
from trimtab.dialects.frameworks.skyrl import ESTIMATORS, LOSSES

EXAMPLES = Examples(
    corrections={
        "tis_ratio_type: token": {"tis_ratio_type": "token"},
        "tis_ratio_type: sequence": {"tis_ratio_type": "sequence"},
        "sequence_mask_metric: geometric": {"sequence_mask_metric": "geometric"},
        "sequence_mask_metric: product": {"sequence_mask_metric": "product"},
        "outlier_token_is_threshold_low/high": {
            "outlier_token_is_threshold_low": 1e-4,
            "outlier_token_is_threshold_high": 100.0,
        },
        "token_mask_is_threshold_low/high": {"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 2.0},
        "token_mask_is_threshold_high alone": {"token_mask_is_threshold_high": 2.0},
        "use_tis (deprecated), default cap": {"trainer": {"algorithm": {"use_tis": True}}},
    },
    objectives=each_name("policy_loss_type", LOSSES) | each_name("advantage_estimator", ESTIMATORS),
    refused={
        "score_centering": {"trainer": {"algorithm": {"score_centering": True, "policy_loss_type": "regular"}}},
        "advantage_batch_normalize: true": {"advantage_estimator": "grpo", "advantage_batch_normalize": True},
        "policy_loss_type: dppo with tis_ratio_type": {
            "trainer": {"algorithm": {"policy_loss_type": "dppo", "off_policy_correction": {"tis_ratio_type": "token"}}}
        },
    },
    passed=(
        ("dynamic_sampling, fully_async.max_staleness_steps", "which rows reach the step"),
        ("value_clip, critic.*", "the critic"),
        ("kl_ctrl.*", "how the coefficient moves between steps"),
        ("clip_cov.*, kl_cov.*", "losses that are named as broken"),
    ),
)
