"""Options of verl worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from typing import Any

from tests.dialects.examples.rows import Examples, Rows, each_name
from trimtab.dialects.frameworks.verl_correction import RATIO_REJECTIONS, REJECTIONS
from trimtab.dialects.frameworks.verl_loss import ESTIMATORS, LOSSES, RECIPE

_geo = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.999_1.001"}
_k3 = {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 0.01}
_pg: dict[str, Any] = {"bypass_mode": True, "loss_type": "reinforce"}
PRESETS: dict[str, dict[str, Any]] = {
    "decoupled_token_is": {"rollout_is": "token", "rollout_is_threshold": 2.0},
    "decoupled_seq_is": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
    "decoupled_token_icepop": {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},
    "decoupled_token_kpop": {"rollout_rs": "binary_kl", "rollout_rs_threshold": 2.0},
    "decoupled_seq_is_rs": {
        "rollout_is": "sequence",
        "rollout_is_threshold": 2.0,
        "rollout_rs": "seq_sum_k1",
        "rollout_rs_threshold": "0.5_2.0",
    },
    "decoupled_geo_rs": _geo,
    "decoupled_geo_rs_seq_tis": {"rollout_is": "sequence", **_geo},
    "decoupled_geo_rs_token_tis": {"rollout_is": "token", **_geo},
    "decoupled_k3_rs": _k3,
    "decoupled_k3_rs_seq_tis": {"rollout_is": "sequence", **_k3},
    "decoupled_k3_rs_token_tis": {"rollout_is": "token", **_k3},
    "bypass_ppo_clip": {"bypass_mode": True, "loss_type": "ppo_clip"},
    "bypass_ppo_clip_geo_rs": {"bypass_mode": True, "loss_type": "ppo_clip", **_geo},
    "bypass_ppo_clip_k3_rs": {"bypass_mode": True, "loss_type": "ppo_clip", **_k3},
    "bypass_pg_is": {**_pg, "rollout_is": "sequence", "rollout_is_threshold": 2.0},
    "bypass_pg_token_icepop": {**_pg, "rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},
    "bypass_pg_geo_rs": {**_pg, **_geo},
    "bypass_pg_geo_rs_seq_tis": {**_pg, "rollout_is": "sequence", "rollout_is_threshold": 2.0, **_geo},
    "bypass_pg_geo_rs_token_tis": {**_pg, "rollout_is": "token", "rollout_is_threshold": 2.0, **_geo},
    "disabled": {},
}
"""verl's own presets."""


def _corrections() -> Rows:
    rows: Rows = {
        "rollout_is: token": {"rollout_is": "token", "rollout_is_threshold": 2.0},
        'rollout_is: token, threshold "0.5_5.0" (IcePop)': {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"},
        "rollout_is: sequence": {"rollout_is": "sequence", "rollout_is_threshold": 2.0},
        "rollout_is_batch_normalize": {"rollout_is": "token", "rollout_is_batch_normalize": True},
    }
    for option, fields in REJECTIONS.items():
        threshold = "0.5_4.0" if fields["metric"] == "k1" else 0.1
        rows[f"rollout_rs: {option}"] = {"rollout_rs": option, "rollout_rs_threshold": threshold}
    for option in RATIO_REJECTIONS:
        rows[f"rollout_rs: {option} (removed)"] = {"rollout_rs": option, "rollout_rs_threshold": 2.0}
    rows["bypass_mode: true"] = {"bypass_mode": True, "rollout_is": "token"}
    rows["tis_imp_ratio_cap (removed)"] = {"actor_rollout_ref": {"actor": {"tis_imp_ratio_cap": 2.0}}}
    rows["rollout_is_mode: mask (removed)"] = {"algorithm": {"rollout_is": True, "rollout_is_mode": "mask"}}
    return rows | {f"preset {name}": dict(settings) for name, settings in PRESETS.items()}


_ALONE = {"use_policy_gradient": True, "use_task_rewards": False, "loss_mode": "k1", "loss_max_clamp": 10.0}
EXAMPLES = Examples(
    corrections=_corrections(),
    objectives={
        f"loss_mode: {name}": {"policy_loss": {"loss_mode": name, "dro_beta": 0.1}} for name in LOSSES if name != RECIPE
    }
    | each_name("adv_estimator", ESTIMATORS),
    refused={
        "use_policy_gradient with use_task_rewards": {
            "distillation": {"enabled": True, "distillation_loss": _ALONE | {"use_task_rewards": True}}
        },
        "loss_mode: forward_kl_topk": {
            "distillation": {"enabled": True, "distillation_loss": {"loss_mode": "forward_kl_topk"}}
        },
        "use_pf_ppo: true": {"adv_estimator": "gae", "use_pf_ppo": True},
        "kl_penalty: full": {"algorithm": {"use_kl_in_reward": True, "kl_penalty": "full"}},
        "kl_loss_type: full": {"use_kl_loss": True, "kl_loss_type": "full"},
        "rollout_rs: seq_max_k1": {"rollout_rs": "seq_max_k1", "rollout_rs_threshold": 2.0},
    },
    passed=(
        ("filter_groups, max_off_policy_threshold", "which rows reach the step"),
        ("critic.*, value_loss, cliprange_value", "the critic"),
        ("ppo_epochs, ppo_mini_batch_size, use_dynamic_bsz, shuffle", "how the batch is split"),
        ("calculate_entropy, calculate_sum_pi_squared, use_fused_kernels", "what is computed beside"),
    ),
)
