"""Every framework that can be read: one row each, by which its files are known. Its module is imported when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from trimtab.errors import UnknownNameError, nearest

if TYPE_CHECKING:
    from trimtab.dialects.framework import Dialect

NEVER = "(?!)"
"""A pattern that nothing matches."""


class Signature(NamedTuple):
    """A framework by its names, and by what only its files have."""

    name: str
    title: str
    short: str | None = None
    """What it is also called."""
    ancestor: str = ""
    """The framework whose keys it took over: a file that could be either's is that one's, a key that only this one has decides."""
    roots: tuple[str, ...] = ()
    """Top-level names of a whole file of theirs."""
    packages: tuple[str, ...] = ()
    """What a Python script imports of it."""
    programs: str = NEVER
    """What its programs and modules are called: a pattern of whole names."""
    own_keys: str = NEVER
    """Keys that only it has: a pattern of full names."""
    only_flags: bool = False
    """Whether it has no files of settings, so that its names at the top of one show nothing."""
    commands: Mapping[str, tuple[str, ...]] = {}
    """Its own commands, with the subcommands that stand before their flags."""
    servers: str = NEVER
    """Programs that train as their clients ask, request by request: a pattern of whole names."""
    own_defaults: tuple[str, ...] = ()
    """Files with its own whole defaults, as other files of settings call them."""
    default_config: str = NEVER
    """What `--config-name` says for its own whole defaults: a pattern of whole names."""
    other_modules: tuple[tuple[str, str, str], ...] = ()
    """Modules that are no reinforcement learning: what they are for, a pattern, and one of the modules beside which that says nothing."""


ORCHESTRATOR = (
    "rollouts_per_example",
    "max_off_policy_steps",
    "max_inflight_rollouts",
    "train.env",
    "pre_batch_filters",
    "post_batch_filters",
)
"""Keys of prime-rl's orchestrator, which stand at the top where it has a file of its own."""
SIGNATURES: dict[str, Signature] = {
    each.name: each
    for each in (
        Signature(
            name="verl",
            title="verl",
            roots=(
                "actor_rollout_ref",
                "algorithm",
                "critic",
                "data",
                "reward_model",
                "trainer",
                "hydra",
                "ray_kwargs",
            ),
            packages=("verl",),
            programs=r"verl\.\w.*|recipe\.[\w.]*main\w*|.*main_ppo(\.py)?",
            own_keys=r"actor_rollout_ref\..*|algorithm\.rollout_correction\..*",
            own_defaults=("ppo_trainer", "ppo_megatron_trainer"),
            default_config=r"config|grpo_trainer|\w*ppo\w*_trainer",
        ),
        Signature(
            name="areal",
            title="AReaL",
            roots=(
                "actor",
                "ref",
                "critic",
                "rollout",
                "gconfig",
                "cluster",
                "train_dataset",
                "experiment_name",
                "saver",
                "evaluator",
            ),
            packages=("areal",),
            programs=r"(.*/)?areal[./]\w.*",
            own_keys=r"gconfig\.\w+|actor\.(behav|eps_clip_higher|m2_threshold|rejection_sampling|use_decoupled_loss|recompute_logprob).*"
            r"|ppo\.(behav_imp_weight_cap|use_decoupled_loss|recompute_logprob)",
        ),
        Signature(
            name="skyrl",
            title="SkyRL",
            roots=("trainer", "generator", "data", "environment"),
            packages=("skyrl", "skyrl_train"),
            programs=r"skyrl\w*\.\w.*|(examples|integrations)\.(train\.)?\w[\w.]*\.main_?\w*|skyrl_train.*",
            own_keys=r"trainer\.algorithm\..*|generator\.inference_engine.*",
            own_defaults=("ppo_base_config", "skyrl_base_config", "base_config", "ppo_config"),
        ),
        Signature(
            name="trl",
            title="TRL",
            roots=(
                "model_name_or_path",
                "learning_rate",
                "output_dir",
                "per_device_train_batch_size",
                "num_generations",
            ),
            packages=("trl",),
            programs=r"(.*/)?trl (grpo|rloo)|trl\..*(GRPO|RLOO).*|trl\.\w.*|(.*/)?(async_)?(grpo|rloo|gspo)\w*\.py",
            own_keys=r"vllm_importance_sampling_.*|reward_funcs|num_completions_to_print",
            commands={"trl": ("grpo", "rloo", "dpo", "sft")},
        ),
        Signature(
            name="openrlhf",
            title="OpenRLHF",
            roots=("actor", "algo", "critic", "data", "reward", "rollout", "train", "ref", "ckpt", "logger", "vllm"),
            packages=("openrlhf",),
            programs=r"openrlhf\.\w.*",
            own_keys=r"algo\.advantage\..*|remote_rm_url|vllm_num_engines|generate_max_len",
            only_flags=True,
        ),
        Signature(
            name="ms-swift",
            short="swift",
            title="ms-swift",
            roots=("model", "rlhf_type", "learning_rate", "output_dir", "num_generations", "beta"),
            packages=("swift",),
            programs=r"(.*/)?(swift|megatron) rlhf|swift\.\w.*",
            own_keys=r"rlhf_type|external_plugins|train_type",
            commands={"swift": ("rlhf", "sft"), "megatron": ("rlhf",)},
        ),
        Signature(
            name="slime",
            title="slime",
            roots=(
                "rollout_batch_size",
                "n_samples_per_prompt",
                "hf_checkpoint",
                "advantage_estimator",
                "global_batch_size",
            ),
            packages=("slime", "vime"),
            programs=r"(slime|vime)\.\w.*|command_utils.*",
            own_keys=r"rollout_max_response_len|rollout_function_path|custom_rm_path|rollout_num_gpus(_per_engine)?|ref_load|hf_checkpoint"
            r"|sglang_mem_fraction_static|use_m?opd|mopd_\w+|custom_tis_function_path",
        ),
        Signature(
            name="nemo-rl",
            short="nemo",
            title="NeMo-RL",
            roots=("grpo", "loss_fn", "policy", "data", "env", "logger", "cluster", "checkpointing"),
            packages=("nemo_rl",),
            programs=r"(.*/)?run_(async_)?(grpo|sliding|vlm_grpo|dapo)\w*\.py|nemo_rl\.\w.*",
            own_keys=r"loss_fn\.\w+|grpo\.num_prompts_per_step|policy\.generation\..*",
        ),
        Signature(
            name="roll",
            title="ROLL",
            roots=("exp_name", "actor_train", "actor_infer", "reference", "rewards", "rollout_batch_size", "pretrain"),
            packages=("roll",),
            programs=r"(.*/)?start_\w+_pipeline\.py|roll\.\w.*",
            own_keys=r"actor_train\.(training_args|strategy_args|model_args)\..*|num_return_sequences_in_group|train_infer_correction\..*",
            own_defaults=("traj_envs", "step_envs", "envs"),
        ),
        Signature(
            name="prime-rl",
            short="prime",
            title="prime-rl",
            roots=("trainer", "orchestrator", "inference", "model", "log", "max_steps"),
            packages=("prime_rl",),
            programs=r"rl|prime_rl[./]\w.*",
            commands={"rl": (), "sft": ()},
            own_keys=rf"orchestrator\.\w.*|trainer\.loss\..*|{'|'.join(map(re.escape, ORCHESTRATOR))}",
        ),
        Signature(
            name="open-instruct",
            title="open-instruct",
            roots=("exp_name", "learning_rate", "model_name_or_path", "num_samples_per_prompt_rollout"),
            packages=("open_instruct",),
            programs=r"(.*/)?open_instruct[./].*|mason\.py",
            own_keys=r"num_samples_per_prompt_rollout|num_unique_prompts_rollout|dataset_mixer_list",
        ),
        Signature(
            name="miles",
            title="miles",
            ancestor="slime",
            roots=("use_miles_router", "recompute_logprobs_via_prefill", "max_weight_staleness"),
            packages=("miles", "miles_plugins"),
            programs=r"miles(_plugins)?[./]\w.*|(.*/)?miles/train(_async)?\.py",
            own_keys=r"recompute_logprobs_via_prefill|true_on_policy_model|max_weight_staleness|use_miles_router|miles_router_\w+"
            r"|skip_actor_forward_only|observe_training_entropy|use(_rollout)?_indexer_replay",
        ),
        Signature(
            name="tinker",
            title="Tinker",
            roots=(
                "groups_per_batch",
                "dataset_builder",
                "kl_penalty_coef",
                "compute_post_kl",
                "behavior_if_log_dir_exists",
            ),
            packages=("tinker_cookbook", "tinker"),
            programs=r"tinker(_cookbook)?[./]\w.*|tinker",
            own_keys=r"loss_fn_config(\..*)?|kl_penalty_coef|kl_discount_factor|compute_post_kl|behavior_if_log_dir_exists|groups_per_batch",
            servers=r".*tinker\.api",
            other_modules=(
                ("distillation from a teacher", r"tinker_cookbook\.distillation\b.*", NEVER),
                ("supervised fine-tuning", r"tinker_cookbook\.supervised\b.*", r"tinker_cookbook\.rl\b.*"),
                ("learning from preferences", r"tinker_cookbook\.preference\b.*", r"tinker_cookbook\.rl\b.*"),
            ),
        ),
        Signature(
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
        ),
    )
}
"""How the files of every framework are known, by name."""


COMMANDS = {name: below for each in SIGNATURES.values() for name, below in each.commands.items()}
"""Commands of frameworks, with their subcommands."""


class _Dialects(Mapping[str, "Dialect"]):
    """The dialects by name, each imported when it is first asked for."""

    def __getitem__(self, name: str) -> Dialect:
        module = SIGNATURES[name].name.removeprefix("ms-").replace("-", "_")
        return cast("Dialect", import_module(f"trimtab.dialects.frameworks.{module}").DIALECT)

    def __contains__(self, name: object) -> bool:
        return name in SIGNATURES

    def __iter__(self) -> Iterator[str]:
        return iter(SIGNATURES)

    def __len__(self) -> int:
        return len(SIGNATURES)


DIALECTS: Mapping[str, Dialect] = _Dialects()
"""Every framework that can be read, by name."""


def dialect_of(framework: str) -> Dialect:
    """The framework of that name, however it is capitalised or joined."""
    plain = framework.lower().replace("_", "-")
    name = next((each.name for each in SIGNATURES.values() if each.short == plain), plain)
    if name not in SIGNATURES:
        raise UnknownNameError(f"There is no framework {framework!r}. {nearest(name, SIGNATURES)}")
    return DIALECTS[name]
