"""Which keys of each framework make a run risky, and which prevent it: one row of facts per framework, for `risks`.

Read in verl 0.9.1, AReaL 1.0.4, SkyRL 0.3.0, TRL 1.16.0, OpenRLHF 0.11.2, ms-swift 4.6.0 as installed, and in the sources of
July and August 2026 of the others. A name is the end of a full name, so that `rollout.top_p` is found under any parent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


def _empty() -> dict[str, Any]:
    return {}


@dataclass(frozen=True, kw_only=True)
class RiskKeys:
    """The row of a framework. A switch is a name, on where its value is; `name=value` is one value of a name."""

    asynchronous: tuple[str, ...] = ()
    """Switches that let samples come from earlier weights; a program that is named for it says so too."""
    async_section: str = ""
    """A section of which the same is true."""
    async_functions: tuple[str, ...] = ()
    """Keys that name a function, which by its name may say so."""
    age: Mapping[str, str] = field(default_factory=_empty)
    """Keys with the age of a sample → words for it."""
    bypass: str = ""
    """The key by which the loss divides by the sampler."""
    model: tuple[str, ...] = ("model", "model_name_or_path")
    replay: tuple[str, ...] = ()
    """Switches that replay the sampler's routing in the trainer."""
    replayed: Mapping[str, Any] = field(default_factory=_empty)
    """And the settings that do."""
    lora: tuple[str, ...] = ()
    cache_kept: tuple[str, ...] = ()
    """Switches under all of which weights change while answers are sampled and the KV cache is kept."""
    cache_renewed: Mapping[str, Any] = field(default_factory=_empty)
    """Settings under which it is not."""
    partial: tuple[str, ...] = ()
    partial_masked: tuple[str, ...] = ()
    support_replay: tuple[str, ...] = ()
    """Switches that replay the sampler's token set."""
    unrecorded: tuple[str, ...] = ()
    """Switches under which the sampler's log-probs are not kept."""
    recorded: Any = True
    """The value under which they are."""
    micro_batches: tuple[str, ...] = ()
    """The size in the pass for old log-probs, and that of the update."""
    dynamic_batches: tuple[str, ...] = ()
    """Switches under which these sizes are not used."""
    correct: Mapping[str, Any] = field(default_factory=_empty)
    """Settings of a correction: truncated importance sampling of tokens, where the framework has it."""
    without: str = ""
    """What to do where the framework has no correction, or its keys are not enough."""
    defaults: Mapping[str, Any] = field(default_factory=_empty)
    is_command: bool = False
    """Whether users write flags."""
    dashes: bool = False


_SLIME = RiskKeys(
    asynchronous=("fully_async",),
    async_functions=("rollout_function_path",),
    age={"max_weight_staleness": "up to {} updates old"},
    bypass="use_rollout_logprobs",
    model=("hf_checkpoint", "ref_load", "load"),
    replay=("use_rollout_routing_replay",),
    replayed={"use_rollout_routing_replay": True},
    partial=("partial_rollout",),
    partial_masked=("mask_offpolicy_in_partial_rollout",),
    correct={"use_tis": True},
    is_command=True,
    dashes=True,
)
_TRL = RiskKeys(
    asynchronous=("max_staleness",),
    age={"max_staleness": "up to {} updates old"},
    model=("model_name_or_path", "model"),
    lora=("use_peft",),
    correct={
        "use_vllm": True,
        "vllm_importance_sampling_mode": "token_truncate",
        "vllm_importance_sampling_clip_max": 2.0,
    },
    without=(
        "AsyncGRPOTrainer has no correction: lower max_staleness, or train with GRPOTrainer and use_vllm, which corrects. vLLM must be "
        "started with `--logprobs-mode processed_logprobs`, which AsyncGRPOTrainer does not check."
    ),
    is_command=True,
)
RISK_KEYS = {
    "verl": RiskKeys(
        async_section="async_training",
        age={"async_training.trigger_parameter_sync_step": "up to {} updates old and older"},
        bypass="algorithm.rollout_correction.bypass_mode",
        model=("actor_rollout_ref.model.path", "model.path"),
        replay=("router_replay.mode=R3", "enable_rollout_routing_replay"),
        replayed={
            "actor_rollout_ref.actor.router_replay.mode": "R3",
            "actor_rollout_ref.rollout.enable_rollout_routing_replay": True,
        },
        lora=("actor_rollout_ref.model.lora_rank", "actor_rollout_ref.model.lora.rank"),
        partial=("async_training.partial_rollout",),
        unrecorded=("actor_rollout_ref.rollout.calculate_log_probs=False",),
        micro_batches=("rollout.log_prob_micro_batch_size_per_gpu", "actor.ppo_micro_batch_size_per_gpu"),
        dynamic_batches=("actor.use_dynamic_bsz", "rollout.log_prob_use_dynamic_bsz"),
        correct={
            "algorithm.rollout_correction.bypass_mode": False,
            "algorithm.rollout_correction.rollout_is": "token",
            "algorithm.rollout_correction.rollout_is_threshold": 2.0,
        },
    ),
    "areal": RiskKeys(
        asynchronous=("rollout.max_head_offpolicyness", "max_head_offpolicyness"),
        age={"max_head_offpolicyness": "up to {} updates old"},
        bypass="actor.use_decoupled_loss",
        model=("actor.path",),
        lora=("actor.use_lora", "rollout.use_lora"),
        correct={
            "actor.use_decoupled_loss": True,
            "actor.rejection_sampling.level": "token",
            "actor.rejection_sampling.action": "clamp",
            "actor.rejection_sampling.upper": 2.0,
        },
    ),
    "nemo-rl": RiskKeys(
        asynchronous=("async_grpo.enabled",),
        age={"async_grpo.max_trajectory_age_steps": "up to {} updates old"},
        bypass="loss_fn.force_on_policy_ratio",
        model=("policy.model_name",),
        replay=("policy.router_replay.enabled",),
        replayed={"policy.router_replay.enabled": True},
        lora=("lora_cfg.enabled", "peft.enabled"),
        cache_kept=("async_grpo.enabled", "async_grpo.in_flight_weight_updates"),
        cache_renewed={"grpo.async_grpo.recompute_kv_cache_after_weight_updates": True},
        micro_batches=("policy.logprob_batch_size", "policy.train_micro_batch_size"),
        dynamic_batches=("dynamic_batching.enabled", "sequence_packing.enabled"),
        correct={
            "loss_fn.use_importance_sampling_correction": True,
            "loss_fn.truncated_importance_sampling_type": "tis",
            "loss_fn.truncated_importance_sampling_ratio": 2.0,
        },
        defaults={"async_grpo.max_trajectory_age_steps": 1},
    ),
    "skyrl": RiskKeys(
        asynchronous=("trainer.fully_async.enabled",),
        age={"trainer.fully_async.max_staleness_steps": "up to {} updates old"},
        bypass="trainer.algorithm.policy_loss_type",
        model=("trainer.policy.model.path",),
        replay=("moe_enable_routing_replay",),
        replayed={
            "trainer.policy.megatron_config.moe_enable_routing_replay": True,
            "generator.inference_engine.enable_return_routed_experts": True,
        },
        lora=("trainer.policy.model.lora.rank",),
        cache_kept=("trainer.fully_async.enabled", "trainer.fully_async.clear_kv_cache_on_weight_sync=False"),
        cache_renewed={"trainer.fully_async.clear_kv_cache_on_weight_sync": True},
        support_replay=("enable_sample_support_replay",),
        unrecorded=("generator.sampling_params.logprobs=None",),
        recorded=1,
        micro_batches=("trainer.micro_forward_batch_size_per_gpu", "trainer.micro_train_batch_size_per_gpu"),
        correct={
            "trainer.algorithm.off_policy_correction.tis_ratio_type": "token",
            "trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high": 2.0,
        },
        defaults={"generator.sampling_params.logprobs": 1, "trainer.fully_async.clear_kv_cache_on_weight_sync": False},
    ),
    "trl": _TRL,
    "openrlhf": RiskKeys(
        asynchronous=("train.async_enable", "async_train"),
        age={"train.async_queue_size": "up to {} batches in the queue old"},
        model=("actor.model_name_or_path", "pretrain"),
        lora=("ds.lora.rank", "lora_rank"),
        partial=("train.partial_rollout_enable",),
        correct={"algo.advantage.is_correction_level": "token", "algo.advantage.is_correction_threshold": [0.0, 2.0]},
        is_command=True,
    ),
    "ms-swift": RiskKeys(
        asynchronous=("async_generate",),
        model=("model", "load"),
        replay=("router_replay_mode=R3",),
        replayed={"router_replay_mode": "R3"},
        lora=("tuner_type", "train_type"),
        correct={"rollout_importance_sampling_mode": "token_truncate"},
        is_command=True,
    ),
    "slime": _SLIME,
    "miles": replace(
        _SLIME,
        lora=("lora_rank",),
        cache_kept=("pause_generation_mode=in_place",),
        cache_renewed={"pause_generation_mode": "retract"},
    ),
    "roll": RiskKeys(
        asynchronous=("async_generation_ratio",),
        age={"async_generation_ratio": "up to {} updates old"},
        model=("pretrain", "actor_train.model_args.model_name_or_path"),
        replay=("actor_train.router_replay.mode=R3", "router_replay.mode=R3"),
        replayed={"actor_train.router_replay.mode": "R3", "actor_infer.router_replay.mode": "R3"},
        lora=("actor_train.model_args.lora_rank", "lora_rank"),
        correct={
            "train_infer_correction.is_weight.enabled": True,
            "train_infer_correction.is_weight.weight_type": "token",
            "train_infer_correction.is_weight.upper_bound": 2.0,
        },
    ),
    "prime-rl": RiskKeys(
        asynchronous=("orchestrator.max_off_policy_steps",),
        age={"orchestrator.max_off_policy_steps": "up to {} updates old"},
        model=("model.name",),
        replay=("trainer.enable_router_replay",),
        replayed={"trainer.enable_router_replay": True},
        lora=("model.lora.rank", "lora.rank"),
        without="Leave trainer.loss at its default, which gates tokens by their ratio to the sampler.",
        defaults={"orchestrator.max_off_policy_steps": 8},
    ),
    "open-instruct": RiskKeys(
        asynchronous=("async_steps",),
        age={"async_steps": "up to {} updates old"},
        bypass="use_vllm_logprobs",
        lora=("use_peft",),
        correct={"use_rho_correction": True},
        is_command=True,
    ),
    "tinker": RiskKeys(
        asynchronous=("max_steps_off_policy",),
        age={"max_steps_off_policy": "up to {} updates old"},
        bypass="loss_fn",
        model=("model_name",),
        without="Train with loss_fn cispo, which bounds the weight of a token.",
    ),
}
