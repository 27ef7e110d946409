"""Settings worth looking up, by framework: each option once, with numbers its users write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Rows = dict[str, dict[str, Any]]
T, V, R = "truncated_importance_sampling", "vllm_importance_sampling", "rollout_importance_sampling"


def _verl() -> Rows:
    from trimtab.dialects.verl.correction import REJECTIONS
    from trimtab.dialects.verl.presets import PRESETS
    from trimtab.dialects.verl.removed import REJECTIONS as REMOVED

    rows: Rows = {
        "rollout_is: token": {"rollout_is": "token", "rollout_is_threshold": 2.0},
        'rollout_is: token, threshold "0.5_5.0" (IcePop)': {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},
        "rollout_is: sequence": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
        "rollout_is_batch_normalize": {"rollout_is": "token", "rollout_is_batch_normalize": True},
    }
    for option, fields in REJECTIONS.items():
        threshold = "0.5_4.0" if fields["metric"] == "k1" else 0.1
        rows[f"rollout_rs: {option}"] = {"rollout_rs": option, "rollout_rs_threshold": threshold}
    for option in REMOVED:
        rows[f"rollout_rs: {option} (removed)"] = {"rollout_rs": option, "rollout_rs_threshold": 2.0}
    rows["bypass_mode: true"] = {"bypass_mode": True, "rollout_is": "token"}
    rows["tis_imp_ratio_cap (removed)"] = {"actor_rollout_ref": {"actor": {"tis_imp_ratio_cap": 2.0}}}
    rows["rollout_is_mode: mask (removed)"] = {"algorithm": {"rollout_is": True, "rollout_is_mode": "mask"}}
    return rows | {f"preset {name}": dict(settings) for name, settings in PRESETS.items()}


def _areal() -> Rows:
    rows: Rows = {
        "level: token, action: mask": {"level": "token", "action": "mask", "upper": 2.0},
        "level: token, action: clamp": {"level": "token", "action": "clamp", "upper": 2.0},
    }
    for agg in ("mean", "sum", "max"):
        rows[f"level: sequence, agg: {agg}, action: mask"] = {"level": "sequence", "agg": agg, "upper": 1.1}
    rows["level: sequence, action: clamp"] = {"level": "sequence", "action": "clamp", "upper": 1.1}
    for metric in ("kl_k1", "kl_k2", "kl_k3"):
        rows[f"metric: {metric}, level: sequence"] = {"level": "sequence", "metric": metric, "upper": 0.1}
    rows["token_action: mask (#1218)"] = {"level": "sequence", "upper": 1.1, "token_action": "mask"}
    rows["m2_threshold"] = {"actor": {"m2_threshold": 0.04}}
    for mode in ("token_mask", "token_truncate", "sequence_mask", "sequence_truncate", "disabled"):
        rows[f"behave_imp_weight_mode: {mode} (removed)"] = {"actor": {"behave_imp_weight_mode": mode}}
    return rows


_SKYRL: Rows = {
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
}
_TRL: Rows = {
    f"{V}_mode: {mode}": {f"{V}_mode": mode}
    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
} | {"off_policy_mask_threshold": {"off_policy_mask_threshold": 0.1}}
_OPENRLHF: Rows = {
    "level token, mode clip": {"is_correction_level": "token", "is_correction_mode": "clip"},
    "level token, mode mask": {"is_correction_level": "token"},
    "level seq, mode mask": {"is_correction_level": "seq", "is_correction_threshold": [0.99, 1.01]},
    "gating binary_kl": {
        "is_correction_level": "token",
        "is_correction_gating": "binary_kl",
        "is_correction_threshold": 0.1,
    },
    "gating tv": {"is_correction_level": "seq", "is_correction_gating": "tv", "is_correction_threshold": 0.1},
}
_SWIFT: Rows = {
    f"{R}_mode: {mode}": {f"{R}_mode": mode}
    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
} | {"off_policy_sequence_mask_delta": {"off_policy_sequence_mask_delta": 0.1}}
_SLIME: Rows = {
    "--use-tis": {"use_tis": True},
    "icepop_function": {
        "use_tis": True,
        "tis_clip_low": 0.5,
        "tis_clip": 5.0,
        "custom_tis_function_path": "slime.backends.megatron_utils.loss.icepop_function",
    },
    "mis, tis_mode truncate": {"use_tis": True, "tis_mode": "truncate", "tis_batch_normalize": False},
    "mis, tis_mode clip": {"use_tis": True, "tis_mode": "clip", "tis_batch_normalize": False},
    "mis, tis_mode mask": {"use_tis": True, "tis_mode": "mask", "tis_batch_normalize": False},
    "mis, rs_level geometric": {
        "use_tis": True,
        "use_rs": True,
        "rs_level": "geometric",
        "rs_lower_bound": 0.99,
        "rs_upper_bound": 1.01,
        "tis_batch_normalize": False,
    },
    "--use-opsm": {"use_opsm": True},
}
_NEMO: Rows = {
    f"{T}_type: {kind}": {
        "use_importance_sampling_correction": True,
        f"{T}_type": kind,
        f"{T}_ratio": upper,
        f"{T}_ratio_min": lower,
    }
    for kind, lower, upper in (("tis", None, 2.0), ("icepop", 0.5, 5.0), ("seq-mask-tis", 0.99, 1.01))
} | {"seq_logprob_error_threshold": {"grpo": {"seq_logprob_error_threshold": 1.5}}}
_ROLL: Rows = {
    f"is_weight: {level}": {"is_weight": {"enabled": True, "weight_type": level}}
    for level in ("token", "segment", "geometric", "sequence")
} | {
    f"filter: {level}": {"filters": [{"enabled": True, "agg_type": level}]}
    for level in ("token", "segment", "geometric", "sequence")
}
_ROLL["filter: diff_enabled"] = {"filters": [{"enabled": True, "ratio_enabled": False, "diff_enabled": True}]}
_OPEN_INSTRUCT: Rows = {
    "rho_clamp_upper_bound": {"rho_clamp_upper_bound": 2.0},
    "rho_mask_lower/upper_bound": {"rho_mask_lower_bound": 0.5, "rho_mask_upper_bound": 5.0},
    "rho_mask_sequence_level": {"rho_mask_sequence_level": True, "rho_mask_upper_bound": 1.1},
    "rho_mask_tv_divergence": {"rho_mask_tv_divergence": True, "rho_mask_upper_bound": 0.1},
}

EXAMPLES: dict[str, Rows] = {
    "verl": _verl(),
    "areal": _areal(),
    "skyrl": _SKYRL,
    "trl": _TRL,
    "openrlhf": _OPENRLHF,
    "ms-swift": _SWIFT,
    "slime": _SLIME,
    "nemo-rl": _NEMO,
    "roll": _ROLL,
    "prime-rl": {"type: default": {"type": "default"}, "type: ipo": {"type": "ipo"}},
    "open-instruct": _OPEN_INSTRUCT,
}


def objectives(framework: str) -> Rows:
    """Losses and estimators by the name the framework gives them."""
    from trimtab.dialects.openrlhf.advantage import ESTIMATORS as OPENRLHF_ESTIMATORS
    from trimtab.dialects.roll import loss as roll
    from trimtab.dialects.skyrl import loss as skyrl
    from trimtab.dialects.skyrl.advantage import ESTIMATORS as SKYRL_ESTIMATORS
    from trimtab.dialects.slime.keys import ESTIMATORS as SLIME_ESTIMATORS
    from trimtab.dialects.trl.advantage import SCALES
    from trimtab.dialects.trl.keys import LOSS_TYPES
    from trimtab.dialects.verl import loss as verl
    from trimtab.dialects.verl.advantage import ESTIMATORS as VERL_ESTIMATORS

    tables: dict[str, Rows] = {
        "verl": {f"loss_mode: {name}": {"policy_loss": {"loss_mode": name, "dro_beta": 0.1}} for name in verl.LOSSES}
        | _named("adv_estimator", VERL_ESTIMATORS),
        "areal": {
            "PPO": {"actor": {"eps_clip": 0.2, "eps_clip_higher": 0.28, "c_clip": 3.0}},
            "importance_sampling_level: sequence": {"importance_sampling_level": "sequence"},
            "use_sapo_loss": {"use_sapo_loss": True},
            "use_cispo_loss": {"use_cispo_loss": True, "eps_clip_higher": 0.28},
            "discount, gae_lambda": {"discount": 1.0, "gae_lambda": 0.95},
        },
        "skyrl": _named("policy_loss_type", skyrl.LOSSES) | _named("advantage_estimator", SKYRL_ESTIMATORS),
        "trl": {
            f"loss_type: {name}": {"loss_type": name, "epsilon_high": 5.0 if name == "cispo" else 0.2}
            for name in LOSS_TYPES
        }
        | _named("scale_rewards", SCALES)
        | {"normalize_advantages (RLOOConfig)": {"normalize_advantages": True}},
        "openrlhf": _named("policy_loss_type", ("ppo", "gspo"))
        | {f"estimator: {name}": {"algo.advantage.estimator": name} for name in OPENRLHF_ESTIMATORS},
        "ms-swift": {
            f"loss_type: {name}": {"loss_type": name, "epsilon_high": 5.0 if name == "cispo" else 0.2}
            for name in ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo")
        }
        | _named("advantage_estimator", ("grpo", "rloo", "reinforce_plus_plus"))
        | {"scale_rewards: gdpo": {"scale_rewards": "gdpo", "reward_weights": [1.0, 0.5]}},
        "slime": {
            f"advantage_estimator: {name}, loss": {"advantage_estimator": name, "eps_clip": 0.2}
            for name in ("grpo", "gspo", "cispo")
        }
        | _named("advantage_estimator", SLIME_ESTIMATORS),
        "nemo-rl": {
            "PPO": {"loss_fn": {"ratio_clip_min": 0.2, "ratio_clip_max": 0.28}},
            "use_cispo": {"loss_fn": {"use_cispo": True}},
            "disable_ppo_ratio": {"loss_fn": {"disable_ppo_ratio": True}},
            "sequence_level_importance_ratios": {
                "loss_fn": {"sequence_level_importance_ratios": True, "token_level_loss": False}
            },
        }
        | {
            f"adv_estimator: {name}": {"grpo": {"adv_estimator": {"name": name, "reward_weights": [1.0, 0.5]}}}
            for name in ("grpo", "gdpo", "reinforce_plus_plus", "gae", "raw_reward")
        },
        "roll": {f"pg_variant: {name}": {"actor_train": {"pg_variant": name}} for name in roll.LOSSES if name != "topr"}
        | _named("adv_estimator", ("gae", "reinforce", "grpo")),
        "prime-rl": {
            f"algo.type: {name}": {"orchestrator": {"algo": {"type": name}}, "trainer": {"loss": {"type": "custom"}}}
            for name in ("grpo", "max_rl")
        }
        | {"ratio_type: token (removed)": {"trainer": {"loss": {"ratio_type": "token"}}}},
        "open-instruct": _named("loss_fn", ("dapo", "cispo"))
        | _named("advantage_normalization_type", ("centered", "standard", "max_rl")),
    }
    return tables[framework]


def _named(key: str, names: Iterable[str]) -> Rows:
    return {f"{key}: {name}": {key: name} for name in names}
