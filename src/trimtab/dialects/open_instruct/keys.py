"""The settings of open-instruct that concern us, with its defaults."""

from __future__ import annotations

from trimtab.dialects.framework import Key
from trimtab.dialects.values import choice, flag, number, raw, text

KEYS = (
    Key("use_rho_correction", flag, True),
    Key("rho_clamp_lower_bound", number, 0.0),
    Key("rho_clamp_upper_bound", number, 2.0),
    Key("rho_mask_lower_bound", number, 0.0),
    Key("rho_mask_upper_bound", number, 0.0),
    Key("rho_mask_sequence_level", flag, False),
    Key("rho_mask_tv_divergence", flag, False),
    Key("use_vllm_logprobs", flag, False),
    Key("truncated_importance_sampling_ratio_cap", number, 2.0, legacy=True),
    Key("use_icepop", flag, False, legacy=True),
    Key("tis_mask_lower", number, 0.0, legacy=True),
    Key("tis_mask_upper", number, 0.0, legacy=True),
    Key("loss_fn", text, "dapo", part="loss"),
    Key("clip_lower", number, 0.2, part="loss"),
    Key("clip_higher", number, 0.272, part="loss"),
    Key("beta", number, 0.05, part="loss"),
    Key("kl_estimator", choice("0", "1", "2", "3", "kl1", "kl2", "kl3", "kl4"), "2", part="loss"),
    Key("load_ref_policy", flag, True, part="other"),
    Key("non_stop_penalty", flag, False, part="other"),
    Key("non_stop_penalty_value", number, 0.0, part="other"),
    Key("loss_denominator", raw, "token", part="loss"),
    Key("mask_truncated_completions", flag, False, part="other"),
    Key("advantage_normalization_type", choice("centered", "standard", "max_rl"), "centered", part="advantage"),
)
