"""The settings of AReaL that concern us, with its defaults."""

from __future__ import annotations

from typing import Any

from trimtab.dialects.framework import Key
from trimtab.dialects.values import choice, flag, number, raw, whole

SECTION = "actor.rejection_sampling"
NORM: dict[str, tuple[Any, Any]] = {
    "mean_level": (choice("batch", "group"), "batch"),
    "mean_leave1out": (flag, False),
    "std_level": (choice("batch", "group"), "batch"),
    "std_unbiased": (flag, True),
    "eps": (number, 1e-5),
    "group_size": (whole, 1),
}
OLD_CAPS = ("actor.behav_imp_weight_cap", "ppo.behav_imp_weight_cap")
CLOSED = ("actor.reward_norm", "actor.adv_norm")
KEYS = (
    Key(f"{SECTION}.level", choice("token", "sequence"), "token"),
    Key(f"{SECTION}.action", choice("mask", "clamp"), "mask"),
    Key(f"{SECTION}.metric", choice("ratio", "kl_k1", "kl_k2", "kl_k3", "binary_kl"), "ratio"),
    Key(f"{SECTION}.agg", choice("sum", "mean", "max"), "mean"),
    Key(f"{SECTION}.upper", number, 5.0, null="open"),
    Key(f"{SECTION}.lower", number),
    Key(f"{SECTION}.token_action", choice("mask", "clamp")),
    Key("actor.m2_threshold", number),
    Key("actor.use_decoupled_loss", flag, False, also=("ppo.use_decoupled_loss",)),
    Key("actor.recompute_logprob", flag, False, also=("ppo.recompute_logprob",)),
    Key("actor.prox_logp_method", choice("recompute", "loglinear", "metrics", "reuse_train_logp"), "recompute"),
    Key("actor.behave_imp_weight_cap", number, 5.0, legacy=True, null="open", also=OLD_CAPS),
    Key(
        "actor.behave_imp_weight_mode",
        choice("token_truncate", "token_mask", "sequence_truncate", "sequence_mask", "disabled"),
        "token_mask",
        legacy=True,
    ),
    Key("actor.eps_clip", number, 0.2, part="loss", also=("ppo.eps_clip",)),
    Key("actor.eps_clip_higher", number, part="loss"),
    Key("actor.c_clip", number, part="loss", also=("ppo.c_clip",)),
    Key("actor.importance_sampling_level", choice("token", "sequence"), "token", part="loss"),
    Key("actor.use_sapo_loss", flag, False, part="loss"),
    Key("actor.sapo_tau_pos", number, 1.0, part="loss"),
    Key("actor.sapo_tau_neg", number, 1.05, part="loss"),
    Key("actor.use_cispo_loss", flag, False, part="loss", since="2.0.0"),
    *(
        Key(
            f"actor.{section}.{name}",
            kind,
            default,
            part="advantage",
            name=f"{section}.{name}",
            null="open" if name.endswith("level") else "refused",
        )
        for section in ("reward_norm", "adv_norm")
        for name, (kind, default) in NORM.items()
    ),
    Key("actor.group_adv_norm", flag, False, part="advantage", legacy=True),
    Key("actor.group_reward_norm", flag, False, part="advantage", legacy=True),
    Key("actor.kl_ctl", number, 0.1, part="advantage"),
    Key("actor.kl_estimator", choice("k1", "k2", "k3"), "k1", part="advantage"),
    Key("actor.mask_no_eos_with_zero", flag, False, part="advantage"),
    Key("actor.reward_scaling", number, 1.0, part="advantage"),
    Key("actor.reward_bias", number, 0.0, part="advantage"),
    Key("actor.reward_clip", number, 20.0, part="advantage"),
    Key("actor.overlong_reward_penalty", flag, False, part="advantage"),
    Key("actor.overlong_tokens", whole, part="advantage"),
    Key("actor.overlong_penalty_factor", number, part="advantage"),
    Key("actor.max_new_tokens", whole, 1024, part="other", also=("gconfig.max_new_tokens",)),
    Key("actor.discount", number, 1.0, part="advantage"),
    Key("actor.gae_lambda", raw, 1.0, part="advantage"),
    Key("actor.gae_timestep_unit", choice("token", "turn"), "token", part="advantage", since="2.0.0"),
    Key("critic.is_critic", flag, False, part="other"),
)
