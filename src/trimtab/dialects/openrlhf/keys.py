"""The settings of OpenRLHF that concern us, with its defaults."""

from __future__ import annotations

from trimtab.dialects.framework import Key
from trimtab.dialects.values import choice, flag, number, numbers, text, whole

P = "algo.advantage.is_correction"
TYPES = choice("tis", "icepop", "seq-mask-tis")
V = "algo.advantage"
KEYS = (
    Key(f"{P}_level", choice("off", "token", "seq"), "off"),
    Key(f"{P}_mode", choice("mask", "clip"), "mask"),
    Key(f"{P}_gating", choice("ratio", "binary_kl", "tv"), "ratio"),
    Key(f"{P}_threshold", numbers, (0.5, 5.0)),
    Key("algo.advantage.enable_vllm_is_correction", flag, False, legacy=True),
    Key("algo.advantage.vllm_is_truncated_threshold", numbers, (0.5, 5.0), legacy=True),
    Key("algo.advantage.vllm_is_correction_type", TYPES, "tis", legacy=True),
    Key("algo.advantage.use_icepop", flag, False, legacy=True),
    Key(f"{P}_enable", flag, False, legacy=True),
    Key(f"{P}_type", TYPES, "tis", legacy=True),
    Key("actor.policy_loss_type", choice("ppo", "gspo"), "ppo", part="loss"),
    Key("actor.eps_clip", number, 0.2, part="loss"),
    Key("actor.eps_clip_low_high", numbers, part="loss"),
    Key("actor.dual_clip", number, part="loss"),
    Key("actor.loss_agg_mode", choice("token-mean", "seq-mean-token-mean"), "token-mean", part="loss"),
    Key(f"{V}.estimator", text, "gae", part="advantage", also=("advantage_estimator",)),
    Key(f"{V}.gamma", number, 1.0, part="advantage"),
    Key(f"{V}.lambd", number, 1.0, part="advantage"),
    Key(f"{V}.no_std_norm", flag, False, part="advantage", also=("no_advantage_std_norm",)),
    Key("algo.kl.init_coef", number, 0.01, part="advantage", also=("init_kl_coef",)),
    Key("algo.kl.target", number, part="other", name="kl.target", also=("kl_target",)),
    Key("algo.kl.use_loss", flag, False, part="loss", also=("use_kl_loss",)),
    Key("algo.kl.unbiased_gradient", flag, False, part="other"),
    Key("algo.kl.estimator", choice("k1", "k2", "k3"), "k1", part="other", name="kl.estimator", also=("kl_estimator",)),
    Key("use_kl_estimator_k3", flag, False, part="other", legacy=True),
    Key("actor.entropy_coef", number, part="loss", also=("entropy_loss_coef",)),
    Key("reward.clip_range", numbers, (-10.0, 10.0), part="advantage", also=("reward_clip_range",)),
    Key("reward.overlong_buffer_len", whole, part="advantage"),
    Key("reward.overlong_penalty_factor", number, 1.0, part="advantage"),
    Key("reward.stop_properly_penalty_coef", number, part="advantage"),
    Key("rollout.max_new_tokens", whole, part="other", also=("generate_max_len",)),
    Key("data.max_len", whole, 2048, part="other"),
    Key("rollout.n_samples_per_prompt", number, 1.0, part="other"),
)
