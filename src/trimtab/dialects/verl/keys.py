"""The settings of verl that concern us, with its defaults."""

from __future__ import annotations

from typing import Any

from trimtab.dialects.framework import Key, Null, Part
from trimtab.dialects.values import Kind, choice, flag, number, numbers, positive, raw, text
from trimtab.dialects.verl import removed
from trimtab.errors import ConfigError

SECTION = "algorithm.rollout_correction"
LOSS_SECTION = "actor_rollout_ref.actor.policy_loss.rollout_correction"
_OPTIONS = (
    ("rollout_is", raw, None),
    ("rollout_is_threshold", raw, 2.0),
    ("rollout_is_batch_normalize", flag, False),
    ("rollout_rs", text, None),
    ("rollout_rs_threshold", raw, None),
    ("bypass_mode", flag, False),
    ("loss_type", choice("ppo_clip", "reinforce"), "ppo_clip"),
)
OPTIONS = tuple(name for name, *_ in _OPTIONS)
A, P = "actor_rollout_ref.actor", "actor_rollout_ref.actor.policy_loss"
TEACHER = "distillation.distillation_loss"
_TEACHING: tuple[tuple[str, Kind, Any, Part, Null], ...] = (
    ("loss_mode", text, "k3", "advantage", "refused"),
    ("use_task_rewards", flag, True, "advantage", "refused"),
    ("use_policy_gradient", flag, False, "advantage", "refused"),
    ("loss_max_clamp", number, None, "advantage", "open"),
    ("distillation_loss_coef", number, 1.0, "loss", "refused"),
    ("clip_ratio", number, 0.2, "loss", "refused"),
    ("clip_ratio_low", number, 0.2, "loss", "open"),
    ("clip_ratio_high", number, 0.2, "loss", "open"),
)
"""As the YAML has them; the dataclass behind it has other defaults."""
KEYS = (
    *(
        Key(
            f"{SECTION}.{name}",
            kind,
            default,
            also=(f"algorithm.{name}",) if name.startswith("rollout_is") else (),
            null="open" if kind is raw else "refused",
        )
        for name, kind, default in _OPTIONS
    ),
    *(
        Key(
            f"{LOSS_SECTION}.{name}",
            kind,
            default,
            name=f"loss.{name}",
            null="open" if kind is raw else "refused",
        )
        for name, kind, default in _OPTIONS
    ),
    Key("trainer.use_v1", flag, True),
    Key("actor_rollout_ref.rollout.calculate_log_probs", flag, True, part="other"),
    *removed.KEYS,
    Key(f"{P}.loss_mode", text, "vanilla", part="loss"),
    Key(f"{P}.clip_cov_ratio", number, 2e-4, part="loss"),
    Key(f"{P}.clip_cov_lb", number, 1.0, part="loss"),
    Key(f"{P}.clip_cov_ub", number, 5.0, part="loss"),
    Key(f"{P}.kl_cov_ratio", number, 2e-4, part="loss"),
    Key(f"{P}.ppo_kl_coef", number, 0.1, part="loss"),
    Key(f"{P}.dro_beta", number, part="loss"),
    Key(f"{P}.adv_ratio_target", number, 1.0, part="loss"),
    *(Key(f"{P}.ratio_{side}_{end}", number, part="loss") for side in ("lower", "upper") for end in ("start", "max")),
    *(Key(f"{P}.ratio_{side}_step", number, 0.05, part="loss") for side in ("lower", "upper")),
    Key(f"{A}.clip_ratio", number, 0.2, part="loss"),
    Key(f"{A}.clip_ratio_low", number, 0.2, part="loss", null="open"),
    Key(f"{A}.clip_ratio_high", number, 0.2, part="loss", null="open"),
    Key(f"{A}.clip_ratio_c", number, 3.0, part="loss"),
    Key(f"{A}.loss_agg_mode", text, "token-mean", part="loss"),
    Key(f"{A}.use_token_level_loss", flag, True, part="loss", legacy=True),
    Key(f"{A}.use_gpg_loss", flag, False, part="loss", legacy=True),
    Key(f"{A}.loss_scale_factor", number, part="loss"),
    Key(f"{A}.tau_pos", number, 1.0, part="loss"),
    Key(f"{A}.tau_neg", number, 1.05, part="loss"),
    Key(f"{A}.use_kl_loss", flag, False, part="loss"),
    Key(f"{A}.kl_loss_coef", number, 0.001, part="loss"),
    Key(f"{A}.kl_loss_type", text, "low_var_kl", part="loss"),
    Key(f"{A}.entropy_coeff", number, 0.0, part="loss"),
    Key("distillation.enabled", flag, False, part="loss", name="distillation.enabled"),
    *(
        Key(f"{TEACHER}.{name}", kind, default, part=part, name=f"teacher.{name}", null=null)
        for name, kind, default, part, null in _TEACHING
    ),
    Key("data.max_response_length", number, part="other"),
    Key("algorithm.adv_estimator", text, "gae", part="advantage"),
    Key("algorithm.gamma", number, 1.0, part="advantage"),
    Key("algorithm.lam", number, 1.0, part="advantage"),
    Key("algorithm.norm_adv_by_std_in_grpo", flag, True, part="advantage"),
    Key("algorithm.gdpo_reward_weights", numbers, part="advantage"),
    Key("algorithm.gdpo_reward_keys", raw, part="advantage"),
    Key("algorithm.use_kl_in_reward", flag, False, part="advantage"),
    Key("algorithm.kl_penalty", text, "kl", part="advantage"),
    Key("algorithm.kl_ctrl.kl_coef", number, 0.001, part="advantage"),
    Key("algorithm.kl_ctrl.type", choice("fixed", "adaptive"), "fixed", part="advantage", name="kl_ctrl.type"),
    Key("algorithm.use_pf_ppo", flag, False, part="advantage"),
)


def is_threshold(value: Any) -> tuple[float | None, float]:
    """`2.0` or `"2.0"`: a cap. `"0.5_2.0"`: a band, 0 outside."""
    path = f"verl {SECTION}.rollout_is_threshold"
    if isinstance(value, str) and "_" in value:
        parts = value.split("_")
        if len(parts) != 2:
            raise ConfigError(f'{path} needs a number or "low_high", got {value!r}.')
        lower, upper = (number(path, part) for part in parts)
        if not 0 < lower <= upper:
            raise ConfigError(f'{path} needs 0 < low <= high in "low_high", got {value!r}.')
        return lower, upper
    return None, positive(path, value)
