"""The settings of Tunix that concern us, with its defaults."""

from __future__ import annotations

from typing import Any

from trimtab.dialects.framework import Given, Key, Part
from trimtab.dialects.values import Kind, choice, flag, nested, number, raw, text
from trimtab.errors import ConfigError

AGENTIC, PLAIN, PPO = "agentic_grpo_config", "grpo_config", "ppo_config"
REDUCTIONS = {
    "token-mean": "token-mean",
    "sequence-mean-token-mean": "seq-mean-token-mean",
    "sequence-mean-token-scale": "seq-mean-token-sum-norm",
    "seq-mean-token-sum": "seq-mean-token-sum",
    "sequence-mean-token-sum-norm": "seq-mean-token-sum",
}
"""`loss_agg_mode` → ours. The last is documented as a norm of its own, which nothing hands to it: it divides by the rows."""
ESTIMATORS = {"kl": "k1", "mse_kl": "k2", "low_var_kl": "k3"}
PROPOSED = (
    "seq_logprob_error_threshold",
    "truncated_importance_sampling_type",
    "truncated_importance_sampling_ratio",
    "truncated_importance_sampling_ratio_min",
    "overlong_loss_masking",
    "score_centering",
)
"""Keep-bands of tunix#2129 and #2270 and score centering, which no release has."""


def _key(name: str, kind: Kind, default: Any = None, part: Part = "loss", **more: Any) -> Key:
    """A key of each of the three sections."""
    also = (f"{PLAIN}.{name}", f"{PPO}.{name}")
    return Key(f"{AGENTIC}.{name}", kind, default, part=part, also=also, **more)


KEYS = (
    _key("sampler_is", choice("token"), part="correction"),
    _key("sampler_is_threshold", number, 2.0, part="correction"),
    _key("use_rollout_logps", flag, True, part="correction"),
    *(_key(name, raw, part="correction") for name in PROPOSED),
    _key("policy_loss_fn", text, "grpo"),
    _key("loss_algo", choice("grpo", "gspo-token"), "grpo"),
    _key("loss_agg_mode", choice(*REDUCTIONS), "sequence-mean-token-mean"),
    _key("epsilon", number, 0.2),
    _key("epsilon_low", number),
    _key("epsilon_high", number),
    _key("epsilon_c", number),
    _key("beta", number, 0.04, null="open"),
    _key("kl_loss_mode", choice(*ESTIMATORS), "kl"),
    _key("kl_clamp_value", number, part="other"),
    _key("entropy_coef", number),
    _key("degenerate_group_masking", flag, False),
    _key("max_response_length", number, part="other"),
    Key("rollout_config.total_generation_steps", number, part="other"),
    _key("advantage_estimator", text, "grpo", part="advantage"),
    _key("num_generations", number, 2.0, part="advantage"),
    _key("gamma", number, 1.0, part="advantage"),
    _key("gae_lambda", number, 0.95, part="advantage"),
    _key("kl_method", choice(*ESTIMATORS), "low_var_kl", part="advantage"),
    _key("overlong_buffer", nested, part="advantage"),
    _key("num_iterations", number, 1.0, part="other"),
    _key("algo_variant", text, part="other"),
    Key("training_mode", choice("grpo", "agentic_grpo", "ppo"), "grpo", part="other"),
)


def has_keys_in(given: Given, section: str) -> bool:
    """Whether anything stands in a section; one of null or {} holds nothing."""
    return given.has_section(section) and given.value_of(section, True) not in (None, {})


def is_ppo(given: Given) -> bool:
    """Whether PPO with a critic is trained."""
    return given["policy_loss_fn"] == "ppo" or given["training_mode"] == "ppo" or has_keys_in(given, PPO)


def is_agentic(given: Given) -> bool:
    """Whether the agentic learner is meant, which alone compares with the sampler; refused where a file has both sections."""
    if has_keys_in(given, AGENTIC) and has_keys_in(given, PLAIN):
        raise ConfigError(
            f"Tunix reads {AGENTIC} or {PLAIN} by training_mode, got both. Leave out the one that is not trained with."
        )
    by_mode = given["training_mode"] == "agentic_grpo" or has_keys_in(given, AGENTIC)
    return by_mode or given.has("sampler_is", "sampler_is_threshold", "use_rollout_logps")
