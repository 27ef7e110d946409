"""Options of AReaL worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, Rows


def _corrections() -> Rows:
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
    rows["m2_threshold"] = {"actor": {"use_decoupled_loss": True, "m2_threshold": 0.04}}
    for mode in ("token_mask", "token_truncate", "sequence_mask", "sequence_truncate", "disabled"):
        removed = {"use_decoupled_loss": True, "behave_imp_weight_mode": mode}
        rows[f"behave_imp_weight_mode: {mode} (removed)"] = {"actor": removed}
    return rows


EXAMPLES = Examples(
    corrections=_corrections(),
    objectives={
        "PPO": {"actor": {"eps_clip": 0.2, "eps_clip_higher": 0.28, "c_clip": 3.0}},
        "importance_sampling_level: sequence": {"importance_sampling_level": "sequence"},
        "use_sapo_loss": {"use_sapo_loss": True},
        "critic with discount, gae_lambda": {
            "actor": {"discount": 1.0, "gae_lambda": 0.95},
            "critic": {"is_critic": True},
        },
        "reward_norm by group, no critic": {
            "actor": {"kl_ctl": 0.0, "reward_norm": {"mean_level": "group", "std_level": "group", "group_size": 8}}
        },
    },
    refused={
        "metric: binary_kl": {"metric": "binary_kl", "upper": 0.1},
        "m2_threshold with rejection_sampling": {
            "actor": {"use_decoupled_loss": True, "m2_threshold": 0.1, "rejection_sampling": {"upper": 2.0}}
        },
        "gae_lambda: a function": {"actor": {"gae_lambda": "areal.utils.functional.vapo_length_adaptive_gae"}},
        "gae_timestep_unit: turn": {"actor": {"gae_timestep_unit": "turn"}},
        "use_sapo_loss with use_decoupled_loss": {"actor": {"use_sapo_loss": True, "use_decoupled_loss": True}},
    },
    passed=(
        ("max_head_offpolicyness, max_concurrent_rollouts", "which rows are admitted"),
        ("ppo_n_minibatches, dynamic_sampling", "how the batch is split"),
        ("critic.*, log_agent_stats", "the critic, and what is logged"),
        ("group_size", "groups come as `group`"),
    ),
)
