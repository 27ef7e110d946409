"""The settings of slime that concern us, with its defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trimtab.dialects.framework import Key
from trimtab.dialects.values import Choice, choice, flag, number, positive, raw, text

LEVELS = choice("token", "sequence", "geometric")
RECIPE = (
    Key("use_rs", flag, False),
    Key("tis_level", LEVELS, "token"),
    Key("rs_level", LEVELS, "token"),
    Key("tis_mode", choice("truncate", "clip", "mask"), "truncate"),
    Key("tis_lower_bound", number, 0.5, null="open"),
    Key("tis_upper_bound", positive, 2.0),
    Key("rs_lower_bound", number),
    Key("rs_upper_bound", number),
    Key("rs_veto_threshold", number, 1e-4, null="open"),
    Key("tis_batch_normalize", flag, True),
)
"""examples/train_infer_mismatch_helper/mis.yaml"""
BEFORE = ("mis_level", "mis_mode", "mis_lower_bound", "mis_upper_bound", "mis_veto_threshold")
"""What that file held before it got use_rs."""
DISTILLED = "on_policy_distillation"
FLASH = "flash_reinforce"
ESTIMATORS = ("grpo", "gspo", "cispo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")


@dataclass(frozen=True)
class EstimatorName(Choice):
    """One of the estimators, a teacher's alone, which was one of them before --use-opd, or one against the mean of the batch."""

    def __call__(self, path: str, value: Any) -> str:
        """The name that was given."""
        return value if value in (DISTILLED, FLASH) else super().__call__(path, value)


KEYS = (
    Key("use_tis", flag, False),
    Key("tis_clip", number, 2.0),
    Key("tis_clip_low", number, 0.0),
    Key("custom_tis_function_path", text),
    Key("tis_binary_kl_threshold", positive, 5e-3),
    Key("use_rollout_logprobs", flag, False),
    Key("use_score_centering", flag, False),
    Key("use_opsm", flag, False),
    Key("opsm_delta", number, 1e-4),
    *RECIPE,
    Key("get_mismatch_metrics", flag, False, part="other"),
    Key("custom_config_path", text, part="other"),
    *(Key(name, raw, legacy=True) for name in BEFORE),
    Key("loss_type", text, "policy_loss", part="loss"),
    Key("pg_loss_type", choice("ppo", "reinforce"), part="loss"),
    Key("eps_clip", number, 0.2, part="loss"),
    Key("eps_clip_high", number, part="loss"),
    Key("eps_clip_c", number, part="loss"),
    Key("calculate_per_token_loss", flag, False, part="loss"),
    Key("custom_pg_loss_reducer_function_path", text, part="loss"),
    Key("custom_loss_function_path", text, part="loss"),
    Key("use_kl_loss", flag, False, part="loss"),
    Key("kl_loss_coef", number, 0.0, part="loss"),
    Key("kl_loss_type", choice("k1", "k2", "k3", "low_var_kl"), "k1", part="other"),
    Key("use_unbiased_kl", flag, False, part="loss"),
    Key("entropy_coef", number, 0.0, part="loss"),
    Key("advantage_estimator", EstimatorName(ESTIMATORS), "grpo", part="advantage"),
    Key("rewards_normalization", flag, True, part="advantage"),
    Key("grpo_std_normalization", flag, True, part="advantage"),
    Key("normalize_advantages", flag, False, part="advantage"),
    Key("kl_coef", number, 0.0, part="advantage"),
    Key("gamma", number, 1.0, part="advantage"),
    Key("lambd", number, 1.0, part="advantage"),
    Key("use_opd", flag, False, part="advantage"),
    Key("opd_kl_coef", number, 1.0, part="advantage"),
    Key("opd_type", text, part="advantage"),
    Key("use_mopd", flag, False, part="advantage"),
    Key("n_samples_per_prompt", number, 1.0, part="other"),
    Key("context_parallel_size", number, 1.0, part="other"),
    Key("rollout_top_p", number, 1.0, part="other"),
)
