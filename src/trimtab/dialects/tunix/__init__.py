"""Tunix: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="tunix",
    title="Tunix",
    roots=(
        "grpo_config",
        "agentic_grpo_config",
        "ppo_config",
        "actor_model_config",
        "reference_model_config",
        "rl_training_config",
        "rollout_config",
    ),
    packages=("tunix",),
    programs=r"(.*/)?tunix[./]\w.*",
    own_keys=r"(agentic_)?grpo_config\..*|ppo_config\.gae_lambda|rl_training_config\..*|sampler_is(_threshold)?",
)
