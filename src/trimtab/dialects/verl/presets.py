"""verl's own presets."""

from __future__ import annotations

from typing import Any

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
