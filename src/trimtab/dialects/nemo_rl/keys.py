"""The settings of NeMo-RL that concern us, with its defaults."""

from __future__ import annotations

from typing import Any

from trimtab.dialects.framework import Key
from trimtab.dialects.values import choice, flag, nested, number, numbers, text

T = "truncated_importance_sampling"
F, E = "loss_fn", "grpo.adv_estimator"
NAMES = ("grpo", "gdpo", "reinforce_plus_plus", "gae", "raw_reward", "opd")


def _estimator_key(name: str, kind: Any, default: Any = None, *also: str, label: str = "") -> Key:
    return Key(f"{E}.{name}", kind, default, part="advantage", name=label, also=(f"ppo.adv_estimator.{name}", *also))


KEYS = (
    Key("loss_fn.use_importance_sampling_correction", flag, False),
    Key(f"loss_fn.{T}_type", choice("tis", "icepop", "seq-mask-tis")),
    Key(f"loss_fn.{T}_ratio", number),
    Key(f"loss_fn.{T}_ratio_min", number),
    Key("loss_fn.sequence_level_importance_ratios", flag, False),
    Key("grpo.seq_logprob_error_threshold", number),
    Key("policy.logprob_estimation", nested, part="other"),
    Key("policy.worker_cls_fqn", text, part="other"),
    Key(f"{F}.token_level_loss", flag, True, part="loss"),
    Key(f"{F}.force_on_policy_ratio", flag, False, part="loss"),
    Key(f"{F}.ratio_clip_min", number, 0.2, part="loss"),
    Key(f"{F}.ratio_clip_max", number, 0.2, part="loss"),
    Key(f"{F}.ratio_clip_c", number, part="loss"),
    Key(f"{F}.use_cispo", flag, False, part="loss"),
    Key(f"{F}.disable_ppo_ratio", flag, False, part="loss"),
    Key(f"{F}.positive_example_nll_weight", number, 0.0, part="loss"),
    Key(f"{F}.reference_policy_kl_penalty", number, 0.0, part="loss"),
    Key(f"{F}.reference_policy_kl_type", choice("k1", "k2", "k3"), "k3", part="other"),
    Key(f"{F}.kl_input_clamp_value", number, 20.0, part="other", null="open"),
    Key(f"{F}.kl_output_clamp_value", number, 10.0, part="other", null="open"),
    Key(f"{F}.use_on_policy_kl_approximation", flag, False, part="loss"),
    Key(f"{F}.use_kl_in_reward", flag, False, part="loss"),
    _estimator_key("name", choice(*NAMES), "grpo", label="adv_estimator.name"),
    _estimator_key("use_leave_one_out_baseline", flag, True, "grpo.use_leave_one_out_baseline"),
    _estimator_key("normalize_rewards", flag, True, "grpo.normalize_rewards"),
    _estimator_key("reward_weights", numbers),
    _estimator_key("minus_baseline", flag, True),
    _estimator_key("gae_lambda", number, 0.95),
    _estimator_key("gae_gamma", number, 1.0),
    _estimator_key("normalize_advantages", flag, True),
    _estimator_key("gae_lambda_value", number),
    _estimator_key("gae_lambda_policy", number),
    _estimator_key("length_adaptive_alpha", number, 0.0),
)
