"""Options of ROLL worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name
from trimtab.dialects.frameworks.roll_rules import LOSSES

EXAMPLES = Examples(
    corrections={
        f"is_weight: {level}": {"is_weight": {"enabled": True, "weight_type": level}}
        for level in ("token", "segment", "geometric", "sequence")
    }
    | {
        f"filter: {level}": {"filters": [{"enabled": True, "agg_type": level}]}
        for level in ("token", "segment", "geometric", "sequence")
    }
    | {"filter: diff_enabled": {"filters": [{"enabled": True, "ratio_enabled": False, "diff_enabled": True}]}},
    objectives={f"pg_variant: {name}": {"actor_train": {"pg_variant": name}} for name in LOSSES if name != "topr"}
    | each_name("adv_estimator", ("gae", "reinforce", "grpo")),
    refused={
        "is_weight.detach: false": {"is_weight": {"enabled": True, "detach": False}},
        "pg_variant: topr with grpo": {"actor_train": {"pg_variant": "topr"}, "adv_estimator": "grpo"},
        "postive_loss_coef": {"pg_clip": 0.2, "postive_loss_coef": 0.1},
        "use_topr_neg_loss_coef": {"pg_clip": 0.2, "use_topr_neg_loss_coef": 0.1},
        "difficulty_loss_weight": {"pg_clip": 0.2, "difficulty_loss_weight": True},
        "length_loss_weight": {"pg_clip": 0.2, "length_loss_weight": True},
        "adv_estimator: gigpo": {"adv_estimator": "gigpo"},
        "norm_mean_type: running": {"adv_estimator": "reinforce", "norm_mean_type": "running"},
        "norm_std_type: group without group means": {
            "adv_estimator": "reinforce",
            "norm_mean_type": "batch",
            "norm_std_type": "group",
        },
        "whiten_rewards": {"adv_estimator": "reinforce", "whiten_rewards": True},
        "use_reward_scaling": {"adv_estimator": "reinforce", "use_reward_scaling": True},
        "add_len_reward": {"adv_estimator": "reinforce", "add_len_reward": True},
        "kl_penalty: full": {"adv_estimator": "gae", "add_token_level_kl": True, "kl_penalty": "full"},
    },
    passed=(
        ("async_generation_ratio", "which rows reach the step"),
        ("value_clip, critic_warmup", "the critic"),
        ("kl_horizon", "how the coefficient moves between steps"),
    ),
)
