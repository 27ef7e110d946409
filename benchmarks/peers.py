"""The real peer frameworks behind one thin, uniform face.

Every callable here runs the framework's own function; nothing is re-typed. A framework is imported on first
use. Modules it merely mentions while importing (inference engines, loggers, cluster runtimes) may be missing:
they are replaced for the duration of that import only, see `absent`.

Conventions: log-probs are float tensors, masks are boolean, (batch, time) unless a function takes `cu_seqlens`;
`settings` carry the framework's own names and values. Corrections return `(weight or None, kept, metrics)`,
losses `(loss, metrics)`, advantages `(advantages, returns)`.
"""

import builtins
import collections
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import io
import logging
import os
import tempfile
import typing
import warnings
from collections.abc import Iterator
from types import FunctionType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import typing_extensions
from torch import Tensor

Metrics = dict[str, Any]
Correction = tuple[Tensor | None, Tensor, Metrics]
Loss = tuple[Tensor, Metrics]
Advantages = tuple[Tensor, Tensor]


# --- Importing a framework without the modules its arithmetic never touches ---------------------------------------


class _Anything(type):
    """Lets a class pass for whatever an import line wants: a module, a base, a decorator, a constant, a type."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        bare_decorator = len(args) == 1 and not kwargs and isinstance(args[0], FunctionType | type)
        return args[0] if bare_decorator else cls

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __bool__(cls) -> bool:
        return False  # `ray.is_initialized()` must say no

    def __fspath__(cls) -> str:
        return "absent"


class Absent(metaclass=_Anything):
    """Stands for a module that is not installed, and for everything in it."""


def _missing(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True


@contextlib.contextmanager
def absent(*names: str, asked_by: tuple[str, ...]) -> Iterator[None]:
    """Answer `import` with `Absent` for those of `names` that are not installed, if a package of `asked_by` asks.

    Nobody else sees a stub: a shared library that tries an optional import is told the truth, and nothing is left
    in `sys.modules`.
    """
    real = builtins.__import__
    missing = tuple(name for name in names if _missing(name))

    def lenient(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        asking = (globals or {}).get("__name__", "").partition(".")[0]
        stubbed = level == 0 and asking in asked_by and f"{name}.".startswith(tuple(f"{m}." for m in missing))
        return Absent if stubbed else real(name, globals, locals, fromlist, level)

    with mock.patch.object(builtins, "__import__", lenient):
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No log records, warnings or prints from a framework; the process's own logging set-up survives it."""
    root, disabled = logging.getLogger(), logging.root.manager.disable
    handlers, level = list(root.handlers), root.level
    sink = io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        root.handlers[:], root.level = handlers, level


def _load(*missing: str, asked_by: tuple[str, ...], **modules: str) -> SimpleNamespace:
    """Import a framework's modules in silence, without those of `missing` that are, and keep the environment."""
    with quiet(), absent(*missing, asked_by=asked_by), mock.patch.dict(os.environ):
        return SimpleNamespace(**{key: importlib.import_module(name) for key, name in modules.items()})


def _floats(mask: Tensor) -> Tensor:
    return mask.to(torch.float32)


def _named(function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Those given arguments that the function names."""
    names = inspect.signature(function).parameters
    return {key: value for key, value in arguments.items() if key in names and value is not None}


def _groups(group: Tensor | None) -> np.ndarray | None:
    return None if group is None else group.numpy()


# --- verl ----------------------------------------------------------------------------------------------------------


@functools.cache
def verl() -> SimpleNamespace:
    """verl's correction, algorithm and configuration modules."""
    return _load(
        "ray",  # the cluster runtime; DataProto only mentions it
        asked_by=("verl",),
        correction="verl.trainer.ppo.rollout_corr_helper",
        algos="verl.trainer.ppo.core_algos",
        actor="verl.workers.config.actor",
        algorithm="verl.trainer.config.algorithm",
    )


@quiet()
def verl_correction(proximal: Tensor, behavior: Tensor, mask: Tensor, **settings: Any) -> Correction:
    """`algorithm.rollout_correction`: compute_rollout_correction_and_rejection_mask."""
    proto, kept, metrics = verl().correction.compute_rollout_correction_and_rejection_mask(
        proximal, behavior, _floats(mask), **settings
    )
    return (proto.batch["rollout_is_weights"] if proto else None), kept.bool(), metrics


def verl_losses() -> list[str]:
    """Names of the registered policy losses."""
    return list(verl().algos.POLICY_LOSS_REGISTRY)


def _verl_actor(loss_mode: str, policy_loss: dict[str, Any], settings: dict[str, Any]) -> Any:
    """A real ActorConfig; `rollout_correction` is filled up with the YAML defaults, as the trainer does."""
    off = {"rollout_is": None}
    correction = verl().algorithm.RolloutCorrectionConfig(**off | policy_loss.pop("rollout_correction", {}))
    loss = verl().actor.PolicyLossConfig(loss_mode=loss_mode, rollout_correction=correction, **policy_loss)
    required = {"strategy": "fsdp", "rollout_n": 1, "ppo_micro_batch_size_per_gpu": 1}
    return verl().actor.ActorConfig(policy_loss=loss, **required, **settings)


@quiet()
def verl_loss(
    loss_mode: str,
    current: Tensor,
    proximal: Tensor,
    advantages: Tensor,
    mask: Tensor,
    weight: Tensor | None = None,
    *,
    policy_loss: dict[str, Any] | None = None,
    **settings: Any,
) -> Loss:
    """`actor`: the registered policy loss. `settings` are fields of ActorConfig, `policy_loss` of PolicyLossConfig.

    For `bypass_mode` the anchor `proximal` is the behavior policy.
    """
    config = _verl_actor(loss_mode, dict(policy_loss or {}), settings)
    return verl().algos.get_policy_loss_fn(loss_mode)(
        old_log_prob=proximal,
        log_prob=current,
        advantages=advantages,
        response_mask=_floats(mask),
        loss_agg_mode=config.loss_agg_mode,
        config=config,
        rollout_is_weights=weight,
    )


@quiet()
def verl_aggregate(losses: Tensor, mask: Tensor, mode: str, **counts: Any) -> Tensor:
    """agg_loss: one number from per-token losses."""
    return verl().algos.agg_loss(losses, _floats(mask), mode, **counts)


@quiet()
def verl_kl(current: Tensor, reference: Tensor, estimator: str) -> Tensor:
    """kl_penalty, per token."""
    return verl().algos.kl_penalty(current, reference, estimator)


def verl_advantages() -> list[str]:
    """Names of the registered advantage estimators."""
    return [str(getattr(name, "value", name)) for name in verl().algos.ADV_ESTIMATOR_REGISTRY]


def _verl_gdpo(rewards_per_func: Tensor, mask: Tensor, keys: list[str]) -> dict[str, Any]:
    """The batch GDPO reads: one named reward column each, no prompt, the row's end from the attention mask."""
    columns = {key: rewards_per_func[:, i].numpy() for i, key in enumerate(keys)}
    attention = mask.flip(-1).cummax(-1).values.flip(-1).long()
    empty = torch.zeros(mask.shape[0], 0, dtype=torch.long)
    return {"non_tensor_batch": columns, "batch": {"prompts": empty, "attention_mask": attention}}


@quiet()
def verl_advantage(
    name: str,
    rewards: Tensor,
    mask: Tensor,
    *,
    group: Tensor | None = None,
    values: Tensor | None = None,
    reward_baselines: Tensor | None = None,
    rewards_per_func: Tensor | None = None,
    **settings: Any,
) -> Advantages:
    """`algorithm.adv_estimator`: token-level `rewards`; `settings` are fields of AlgoConfig or extra arguments."""
    algos = verl().algos
    function = algos.get_adv_estimator_fn(name)
    fields = {field.name for field in dataclasses.fields(algos.AlgoConfig)}
    known = {key: value for key, value in settings.items() if key in fields}
    config = algos.AlgoConfig(adv_estimator=name, **known)
    given = known | {"config": config, "gamma": config.gamma, "lam": config.lam, "index": _groups(group)}
    given |= {"values": values, "reward_baselines": reward_baselines}
    if rewards_per_func is not None:
        given |= _verl_gdpo(rewards_per_func, mask, list(config.gdpo_reward_keys))
    extra = {key: value for key, value in settings.items() if key not in fields}
    return function(token_level_rewards=rewards, response_mask=_floats(mask), **_named(function, given), **extra)


# --- AReaL ---------------------------------------------------------------------------------------------------------


@functools.cache
def areal() -> SimpleNamespace:
    """AReaL's loss, data, actor and configuration modules."""
    with mock.patch.dict(os.environ, AREAL_CACHE_DIR=os.path.join(tempfile.gettempdir(), "areal")):  # made on import
        return _load(
            *("aiohttp", "flask", "werkzeug", "uvloop", "openai", "pybase64"),  # servers and their clients
            *("wandb", "swanlab", "trackio", "tensorboardX"),  # experiment loggers
            *("ray", "torchdata", "datasets", "PIL"),  # the cluster runtime, data loading
            *("numba", "hydra"),  # compiled bin packing; the launcher, which needs an older omegaconf
            asked_by=("areal",),
            functional="areal.utils.functional.functional",
            data="areal.utils.data",
            actor="areal.trainer.ppo.actor",
            stats="areal.utils.stats_tracker",
            config="areal.api.cli_args",
        )


def _areal_gate(settings: dict[str, Any] | None) -> Any:
    return None if settings is None else areal().config.RejectionSamplingConfig(**settings)


@quiet()
def areal_correction(
    proximal: Tensor, behavior: Tensor, mask: Tensor, cu_seqlens: Tensor | None = None, **settings: Any
) -> Correction:
    """`actor.rejection_sampling`: apply_rejection_sampling on padded (2-D) or packed (1-D, `cu_seqlens`) tokens."""
    gate = _areal_gate(settings)
    result = areal().functional.apply_rejection_sampling(proximal, behavior, mask.bool(), cu_seqlens, gate)
    return result.behave_imp_weight, result.loss_mask.bool(), {"filtered_fraction": result.filtered_fraction}


@quiet()
def areal_loss(
    current: Tensor,
    proximal: Tensor,
    advantages: Tensor,
    mask: Tensor,
    behavior: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    *,
    rejection_sampling: dict[str, Any] | None = None,
    eps_clip: float = 0.2,
    **settings: Any,
) -> Loss:
    """ppo_actor_loss_fn; the metrics are its per-token statistics."""
    return areal().functional.ppo_actor_loss_fn(
        logprobs=current,
        proximal_logprobs=proximal,
        old_logprobs=proximal if behavior is None else behavior,
        advantages=advantages,
        loss_mask=mask.bool(),
        cu_seqlens=cu_seqlens,
        eps_clip=eps_clip,
        rejection_sampling=_areal_gate(rejection_sampling),
        **settings,
    )


@quiet()
def areal_sapo_loss(
    current: Tensor,
    proximal: Tensor,
    advantages: Tensor,
    mask: Tensor,
    cu_seqlens: Tensor | None = None,
    *,
    tau_pos: float = 1.0,
    tau_neg: float = 1.05,
    importance_sampling_level: str = "token",
) -> Loss:
    """sapo_loss_fn; the metrics are its per-token statistics."""
    return areal().functional.sapo_loss_fn(
        logprobs=current,
        old_logprobs=proximal,
        advantages=advantages,
        tau_pos=tau_pos,
        tau_neg=tau_neg,
        loss_mask=mask.bool(),
        importance_sampling_level=importance_sampling_level,
        cu_seqlens=cu_seqlens,
    )


@quiet()
def areal_actor_loss(
    current: Tensor,
    proximal: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    behavior: Tensor,
    cu_seqlens: Tensor | None = None,
    *,
    versions: Tensor | None = None,
    rejection_sampling: dict[str, Any] | None = None,
    eps_clip: float = 0.2,
    **settings: Any,
) -> Loss:
    """grpo_loss_fn, the actor's whole step (proximal approximation, M2PO, PPO or SAPO), with the scalars it logs."""
    batch = {"logprobs": behavior, "advantages": advantages, "loss_mask": mask, "prox_logp": proximal}
    batch |= {"cu_seqlens": cu_seqlens} if cu_seqlens is not None else {}
    batch |= {"versions": versions} if versions is not None else {}
    settings = {"eps_clip_higher": None, "c_clip": None} | settings
    areal().stats.export()
    loss = areal().actor.grpo_loss_fn(
        logprobs=current,
        entropy=torch.zeros_like(current),
        input_data=batch,
        eps_clip=eps_clip,
        rejection_sampling=_areal_gate(rejection_sampling),
        **settings,
    )
    return loss, areal().stats.export()


@quiet()
def areal_m2po_mask(proximal: Tensor, behavior: Tensor, mask: Tensor, m2_threshold: float) -> Tensor:
    """_apply_m2po_masking: the tokens M2PO keeps."""
    return areal().actor._apply_m2po_masking(behavior, proximal, mask.bool(), m2_threshold)


@quiet()
def areal_proximal(
    current: Tensor, behavior: Tensor, versions: Tensor, current_version: int, method: str | None = None
) -> dict[str, Tensor]:
    """compute_prox_logp_approximations: proximal log-probs interpolated from policy versions, by method."""
    approximations = areal().actor.compute_prox_logp_approximations
    return approximations(behavior, current, versions, current_version, method)


@quiet()
def areal_kl(current: Tensor, reference: Tensor, estimator: str, clamp: bool = True) -> Tensor:
    """KLEstimator, per token."""
    return areal().data.KLEstimator(estimator, clamp)(current, reference)


@quiet()
def areal_normalise(x: Tensor, mask: Tensor | None = None, **settings: Any) -> Tensor:
    """`actor.reward_norm` or `actor.adv_norm`: Normalization with a NormConfig of `settings`."""
    normalization = areal().data.Normalization(areal().config.NormConfig(**settings))
    return normalization(x, None if mask is None else _floats(mask))


@quiet()
def areal_advantages(
    rewards: Tensor,
    attention_mask: Tensor,
    loss_mask: Tensor,
    behavior: Tensor,
    *,
    reference: Tensor | None = None,
    values: Tensor | None = None,
    **settings: Any,
) -> dict[str, Tensor]:
    """`actor`: PPOActor._compute_advantages, from rewards to advantages. `settings` are fields of PPOActorConfig."""
    norms = {key: settings[key] for key in ("reward_norm", "adv_norm") if settings.get(key) is not None}
    settings |= {key: areal().config.NormConfig(**value) for key, value in norms.items()}
    actor = areal().actor.PPOActor(areal().config.PPOActorConfig(**settings), engine=None)
    batch = {"input_ids": attention_mask.long(), "attention_mask": attention_mask, "loss_mask": loss_mask}
    batch |= {"rewards": rewards.clone(), "logprobs": behavior.clone()}
    batch |= {"ref_logp": reference.clone()} if reference is not None else {}
    batch |= {"values": values.clone()} if values is not None else {}
    return actor._compute_advantages(batch)


# --- SkyRL ---------------------------------------------------------------------------------------------------------


@functools.cache
def skyrl() -> SimpleNamespace:
    """SkyRL's correction, loss and configuration modules."""
    with mock.patch.object(typing, "TypedDict", typing_extensions.TypedDict):  # pydantic's rule before Python 3.12
        peer = _load(
            *("ray", "pandas"),  # the cluster runtime; a tool of its environments
            asked_by=("skyrl", "skyrl_gym"),
            correction="skyrl.backends.skyrl_train.utils.off_policy_correction_utils",
            ppo="skyrl.backends.skyrl_train.utils.ppo_utils",
            config="skyrl.train.config.config",
        )
    importlib.import_module("loguru").logger.disable("skyrl")
    return peer


@quiet()
def skyrl_correction(proximal: Tensor, behavior: Tensor, mask: Tensor, **settings: Any) -> Correction:
    """`trainer.algorithm.off_policy_correction`: compute_off_policy_correction; a weight per row is spread out."""
    config = skyrl().config.OffPolicyCorrectionConfig(**settings)
    correction = skyrl().correction.compute_off_policy_correction
    weight, metrics, kept = correction(proximal, behavior, _floats(mask), config)
    return (None if weight is None else weight.expand(mask.shape)), kept.bool(), metrics


def skyrl_losses() -> list[str]:
    """Names of the registered policy losses."""
    return list(skyrl().ppo.PolicyLossRegistry.list_available())


@quiet()
def skyrl_reduction(advantages: Tensor, mask: Tensor, loss_reduction: str, **settings: Any) -> Tensor:
    """Advantages scaled so that the sum of the loss is `loss_reduction`, as the trainer does per mini-batch."""
    scale = skyrl().ppo.apply_loss_reduction_to_advantages_minibatch
    settings = {"micro_batch_size": len(mask), "max_seq_len": None} | settings
    return scale(advantages, _floats(mask), loss_reduction, **settings)


@quiet()
def skyrl_loss(
    loss_type: str,
    current: Tensor,
    proximal: Tensor,
    advantages: Tensor,
    mask: Tensor,
    behavior: Tensor | None = None,
    *,
    micro_batch_size: int | None = None,
    prompt_boundaries: list[tuple[int, int]] | None = None,
    **settings: Any,
) -> Loss:
    """`trainer.algorithm`: loss reduction over this mini-batch, then the registered policy loss.

    `settings` are fields of AlgorithmConfig; nested ones (`off_policy_correction`, `cispo` ...) are dictionaries.
    """
    config = skyrl().config.build_nested_dataclass(
        skyrl().config.AlgorithmConfig, {"policy_loss_type": loss_type} | settings
    )
    advantages = skyrl_reduction(
        advantages,
        mask,
        config.loss_reduction,
        micro_batch_size=micro_batch_size or len(mask),
        max_seq_len=config.max_seq_len,
        prompt_boundaries=prompt_boundaries,
    )
    function = skyrl().ppo.PolicyLossRegistry.get(loss_type)
    return function(current, proximal, advantages, config, loss_mask=_floats(mask), rollout_logprobs=behavior)


@quiet()
def skyrl_kl(current: Tensor, reference: Tensor, mask: Tensor, estimator: str) -> Tensor:
    """compute_approx_kl, per token."""
    return skyrl().ppo.compute_approx_kl(current, reference, _floats(mask), kl_estimator_type=estimator)


def skyrl_advantages() -> list[str]:
    """Names of the registered advantage estimators."""
    return list(skyrl().ppo.AdvantageEstimatorRegistry.list_available())


@quiet()
def skyrl_advantage(
    name: str,
    rewards: Tensor,
    mask: Tensor,
    *,
    group: Tensor | None = None,
    values: Tensor | None = None,
    **settings: Any,
) -> Advantages:
    """`trainer.algorithm.advantage_estimator`: compute_advantages_and_returns on token-level `rewards`."""
    config = skyrl().config.AlgorithmConfig(advantage_estimator=name, **settings)
    return skyrl().ppo.compute_advantages_and_returns(
        token_level_rewards=rewards,
        response_mask=_floats(mask),
        index=_groups(group),
        adv_estimator=name,
        config=config,
        values=values,
        grpo_norm_by_std=config.grpo_norm_by_std,
        gamma=config.gamma,
        lambd=config.lambd,
    )


# --- Trainers that compute inside a method -------------------------------------------------------------------------


def _bare(trainer: type, **attributes: Any) -> Any:
    """An instance with its real methods but without its constructor: no model, no data, no engine."""
    instance: Any = object.__new__(trainer)
    instance.__dict__.update(attributes)
    return instance


def _alone() -> SimpleNamespace:
    """What a trainer needs of an accelerator when it is the only process."""
    return SimpleNamespace(
        device=torch.device("cpu"),
        num_processes=1,
        process_index=0,
        is_main_process=True,
        sync_gradients=True,
        gather=lambda x: x,
        gather_for_metrics=lambda x: x,
        pad_across_processes=lambda x, **_: x,
        reduce=lambda x, **_: x,
    )


def _model() -> SimpleNamespace:
    return SimpleNamespace(training=True, is_gradient_checkpointing=False)


def _training(num_generations: int = 2, **settings: Any) -> dict[str, Any]:
    """Training arguments that ask for no accelerator, report to nobody and hold one prompt."""
    alone = {"output_dir": tempfile.gettempdir(), "use_cpu": True, "bf16": False, "report_to": "none"}
    batch = {"num_generations": num_generations, "per_device_train_batch_size": num_generations}
    return alone | batch | {"gradient_accumulation_steps": 1} | settings


def _logged(metrics: dict[str, list[float]]) -> Metrics:
    return {key: float(values[-1]) for key, values in metrics.items()}


# --- TRL -----------------------------------------------------------------------------------------------------------


@functools.cache
def trl() -> SimpleNamespace:
    """TRL's GRPO and RLOO trainers, their configurations and log-prob helpers."""
    return _load(
        *("datasets", "pandas", "pyarrow"),  # data sets and their tables
        asked_by=("trl",),
        grpo="trl.trainer.grpo_trainer",
        rloo="trl.trainer.rloo_trainer",
        grpo_config="trl.trainer.grpo_config",
        rloo_config="trl.trainer.rloo_config",
        utils="trl.trainer.utils",
    )


def _trl_trainer(trainer: type, config: Any, **attributes: Any) -> Any:
    """A trainer whose attributes are those its constructor would copy from the configuration."""
    derived = {
        "args": config,
        "accelerator": _alone(),
        "model": _model(),
        "epsilon_low": config.epsilon,
        "epsilon_high": config.epsilon if config.epsilon_high is None else config.epsilon_high,
        "current_gradient_accumulation_steps": config.gradient_accumulation_steps,
        "aux_loss_enabled": False,
        "_entropy_bonus_enabled": getattr(config, "entropy_coef", 0.0) != 0,
        "_metrics": {"train": collections.defaultdict(list)},
    }
    return _bare(trainer, **vars(config) | derived | attributes)


def _trl_generation(rewards_per_func: Tensor, settings: Any, **attributes: Any) -> dict[str, Any]:
    """What a trainer asks its surroundings for while it scores a batch of completions."""
    functions = rewards_per_func.shape[1]
    weights = settings.reward_weights or [1.0] * functions
    logs: dict[str, Any] = {"prompt": [], "completion": [], "advantages": [], "extra": {}}
    logs["rewards"] = collections.defaultdict(list)
    return {
        "tools": None,
        "environments": None,
        "environment_factories": None,
        "_tokenizer": SimpleNamespace(pad_token_id=0),
        "reward_funcs": [None] * functions,
        "reward_func_names": [f"reward {i}" for i in range(functions)],
        "reward_weights": torch.tensor(weights),
        "_calculate_rewards": lambda *_: rewards_per_func,
        "_logs": logs,
        "_pending_extra_logs": {},
        "_pending_metrics": {},
    } | attributes


@quiet()
def trl_correction(proximal: Tensor, behavior: Tensor, mask: Tensor, **settings: Any) -> Correction:
    """`GRPOConfig.vllm_importance_sampling_*`: GRPOTrainer._generate_and_score_completions; the mask stays."""
    config = trl().grpo_config.GRPOConfig(**_training(use_vllm=True, **settings))
    rows, width = mask.shape
    tokens = [[0] * width for _ in range(rows)]
    generated: tuple[Any, ...] = (
        [[0]] * rows,
        tokens,
        mask.long().tolist(),
        [""] * rows,
        behavior.tolist(),
        {},
        None,
        None,
    )
    surroundings = _trl_generation(
        torch.zeros(rows, 1),
        config,
        num_generations=rows,
        _generate=lambda *_: generated,
        _get_per_token_logps_and_entropies=lambda *_, **__: (proximal, None, None),
    )
    trainer = _trl_trainer(trl().grpo.GRPOTrainer, config, **surroundings)
    batch = trainer._generate_and_score_completions([{"prompt": ""}] * rows)
    return batch["importance_sampling_ratio"].expand(rows, width), mask, _logged(trainer._metrics["train"])


@quiet()
def trl_off_policy_mask(
    current: Tensor, behavior: Tensor, advantages: Tensor, mask: Tensor, off_policy_threshold: float
) -> Tensor:
    """GRPOTrainer.get_off_policy_mask with one advantage per row: True for the rows it keeps."""
    keep = trl().grpo.GRPOTrainer.get_off_policy_mask
    return keep(advantages.unsqueeze(1), current, behavior, mask.long(), off_policy_threshold).squeeze(1).bool()


@quiet()
def trl_gamma_weights(
    current: Tensor, proximal: Tensor, advantages: Tensor, mask: Tensor, weight: Tensor | None = None, **settings: Any
) -> Tensor:
    """GRPOTrainer.get_gamma_weights (VESPO), one per row; one advantage per row."""
    weights = trl().grpo.GRPOTrainer.get_gamma_weights
    return weights(advantages.unsqueeze(1), current - proximal, mask.long(), weight, **settings).squeeze(1)


@quiet()
def trl_log_probs(logits: Tensor, tokens: Tensor, temperature: float = 1.0) -> Tensor:
    """selective_log_softmax."""
    return trl().utils.selective_log_softmax(logits, tokens, temperature)


@quiet()
def trl_loss(
    current: Tensor,
    proximal: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    weight: Tensor | None = None,
    *,
    behavior: Tensor | None = None,
    reference: Tensor | None = None,
    entropies: Tensor | None = None,
    num_items_in_batch: int | None = None,
    **settings: Any,
) -> Loss:
    """GRPOTrainer._compute_loss; one advantage per row. `settings` are fields of GRPOConfig, e.g. `loss_type`.

    `weight` is the importance weight of `trl_correction`, `behavior` what the off-policy mask compares with,
    `num_items_in_batch` the valid tokens of the generation batch (default: of this batch).
    """
    config = trl().grpo_config.GRPOConfig(**_training(**{"use_vllm": weight is not None} | settings))
    entropies = torch.zeros_like(current) if entropies is None else entropies
    trainer = _trl_trainer(
        trl().grpo.GRPOTrainer,
        config,
        _get_per_token_logps_and_entropies=lambda *_, **__: (current, entropies, None),
    )
    tokens = torch.zeros_like(mask, dtype=torch.long)
    items = mask.sum() if num_items_in_batch is None else torch.tensor(num_items_in_batch)
    batch = {"prompt_ids": tokens[:, :1], "prompt_mask": tokens[:, :1], "completion_ids": tokens}
    batch |= {"completion_mask": mask.long(), "advantages": advantages, "num_items_in_batch": items}
    optional = {
        "old_per_token_logps": proximal,
        "importance_sampling_ratio": weight,
        "sampling_per_token_logps": behavior,
        "ref_per_token_logps": reference,
    }
    batch |= {key: value for key, value in optional.items() if value is not None}
    return trainer._compute_loss(None, batch), _logged(trainer._metrics["train"])


@quiet()
def trl_advantage(rewards_per_func: Tensor, num_generations: int, **settings: Any) -> Tensor:
    """GRPOTrainer's advantages, one per row; rows of a prompt are consecutive. `settings` are fields of GRPOConfig."""
    rows = len(rewards_per_func)
    config = trl().grpo_config.GRPOConfig(**_training(num_generations, **settings))
    generated: tuple[Any, ...] = ([[0]] * rows, [[0]] * rows, None, [""] * rows, None, {}, None, None)
    surroundings = _trl_generation(rewards_per_func, config, _generate=lambda *_: generated)
    trainer = _trl_trainer(trl().grpo.GRPOTrainer, config, **surroundings)
    return trainer._generate_and_score_completions([{"prompt": ""}] * rows)["advantages"]


@quiet()
def trl_rloo_advantage(rewards_per_func: Tensor, num_generations: int, **settings: Any) -> Tensor:
    """RLOOTrainer's advantages without a KL penalty. `settings` are fields of RLOOConfig."""
    rows = len(rewards_per_func)
    config = trl().rloo_config.RLOOConfig(**_training(num_generations, beta=0.0, **settings))
    surroundings = _trl_generation(
        rewards_per_func,
        config,
        _generate=lambda *_: ([[0]] * rows, [[0]] * rows, [""] * rows),
        _get_per_token_logps_and_entropies=lambda *_, **__: (torch.zeros(rows, 1), None, None),
    )
    trainer = _trl_trainer(trl().rloo.RLOOTrainer, config, **surroundings)
    return trainer._generate_and_score_completions([{"prompt": ""}] * rows)["advantages"]


# --- OpenRLHF ------------------------------------------------------------------------------------------------------


@functools.cache
def openrlhf() -> SimpleNamespace:
    """OpenRLHF's losses and its experience maker."""
    return _load(
        *("deepspeed", "vllm", "flash_attn", "peft", "ray"),  # engines, GPU kernels, adapters, the cluster runtime
        *("torchdata", "aiohttp", "pylatexenc"),  # data loading, tool servers, a verifier of mathematics
        asked_by=("openrlhf",),
        loss="openrlhf.models.loss",
        utils="openrlhf.models.utils",
        maker="openrlhf.trainer.ppo_utils.experience_maker",
        experience="openrlhf.trainer.ppo_utils.experience",
        kl="openrlhf.trainer.ppo_utils.kl_controller",
    )


_OPENRLHF_METRICS = ("ppo_clip_ratio", "ppo_kl", "vllm_kl", "is_filter_ratio")


@quiet()
def openrlhf_loss(
    current: Tensor,
    proximal: Tensor,
    advantages: Tensor,
    mask: Tensor,
    behavior: Tensor | None = None,
    *,
    batch_num_tokens: float | None = None,
    global_batch_size: float | None = None,
    dp_size: int = 1,
    **settings: Any,
) -> Loss:
    """PolicyLoss; `settings` are its constructor's (clip_eps_low, policy_loss_type, is_correction_level ...)."""
    counts = {"dp_size": dp_size, "batch_num_tokens": batch_num_tokens, "global_batch_size": global_batch_size}
    policy_loss = openrlhf().loss.PolicyLoss(**settings)
    loss, *scalars = policy_loss(current, proximal, advantages, _floats(mask), behavior, **counts)
    named = zip(_OPENRLHF_METRICS, scalars, strict=True)
    return loss, {name: float(value) for name, value in named if value is not None}


def openrlhf_correction(proximal: Tensor, behavior: Tensor, mask: Tensor, **settings: Any) -> Correction:
    """PolicyLoss's coefficient, read off its gradient on policy with advantage 1; the mask stays.

    `settings` are `is_correction_level`, `_mode`, `_gating` and `_threshold` (low, high).
    """
    current = proximal.clone().requires_grad_()
    ones = torch.ones_like(proximal)
    loss, metrics = openrlhf_loss(current, proximal, ones, mask, behavior, batch_num_tokens=1.0, **settings)
    (grad,) = torch.autograd.grad(loss, current)
    weight = None if settings.get("is_correction_level", "off") == "off" else -grad
    return weight, mask, {name: metrics[name] for name in ("vllm_kl", "is_filter_ratio") if name in metrics}


@quiet()
def openrlhf_kl(current: Tensor, reference: Tensor, estimator: str, **settings: Any) -> Tensor:
    """compute_approx_kl, per token."""
    return openrlhf().utils.compute_approx_kl(current, reference, kl_estimator=estimator, **settings)


@quiet()
def openrlhf_advantage(
    name: str,
    rewards: Tensor,
    mask: Tensor,
    n_samples_per_prompt: int,
    *,
    kl: Tensor | None = None,
    values: Tensor | None = None,
    init_coef: float = 0.0,
    clip_range: tuple[float, float] | None = (-10.0, 10.0),
    gamma: float = 1.0,
    lambd: float = 1.0,
    no_std_norm: bool = False,
) -> Advantages:
    """RemoteExperienceMaker.compute_advantages_and_returns; one reward per row, a prompt's rows are consecutive."""
    advantage = SimpleNamespace(estimator=name, gamma=gamma, lambd=lambd, no_std_norm=no_std_norm)
    args = SimpleNamespace(
        algo=SimpleNamespace(advantage=advantage),
        reward=SimpleNamespace(clip_range=clip_range),
        rollout=SimpleNamespace(n_samples_per_prompt=n_samples_per_prompt),
    )
    controller = openrlhf().kl.FixedKLController(init_coef)
    maker = openrlhf().maker.RemoteExperienceMaker(None, None, None, None, controller, SimpleNamespace(args=args), None)
    experience = openrlhf().experience.Experience(
        rewards=rewards.clone(),
        action_mask=mask,
        values=values,
        kl=torch.zeros(mask.shape) if kl is None else kl,
        index=list(range(len(rewards))),
    )
    (result,) = maker.compute_advantages_and_returns([experience])
    return result.advantages, result.returns


# --- ms-swift ------------------------------------------------------------------------------------------------------


@functools.cache
def swift() -> SimpleNamespace:
    """ms-swift's GRPO trainer and advantages; TRL's trainer, from which it deletes methods, is put back."""
    base = trl().grpo.GRPOTrainer
    with mock.patch.multiple(base, __init__=base.__init__, log=base.log):
        return _load(
            *("modelscope", "datasets", "pandas", "pyarrow", "PIL", "peft", "aiohttp"),  # hubs, data, images, adapters
            "trl.experimental.ppo",  # gone from TRL since
            asked_by=("swift", "trl"),
            trainer="swift.rlhf_trainers.grpo_trainer",
            config="swift.rlhf_trainers.arguments",
            advantage="swift.rl_core.advantage",
            data="swift.rl_core.data",
        )


def _swift_trainer(settings: dict[str, Any], **attributes: Any) -> Any:
    """A trainer whose algorithm parameters come from a real GRPOConfig of `settings`."""
    config = swift().config.GRPOConfig(**_training(**settings))
    trainer = _bare(
        swift().trainer.GRPOTrainer,
        args=config,
        accelerator=_alone(),
        model=_model(),
        beta=config.beta,
        max_completion_length=config.max_completion_length,
        num_generations=config.num_generations,
        disable_rollout_importance_sampling=False,
        compute_entropy=False,
        model_accepts_loss_kwargs=False,
        compute_loss_func=None,
        chord_sft_iterator=None,
        _has_teacher=False,
        _metrics={"train": collections.defaultdict(list)},
        **attributes,
    )
    trainer._prepare_algorithm_params()
    return trainer


@quiet()
def swift_correction(proximal: Tensor, behavior: Tensor, mask: Tensor, **settings: Any) -> Correction:
    """`rollout_importance_sampling_*` of GRPOTrainer, with its off-policy metrics; the mask stays."""
    trainer = _swift_trainer(settings)
    metrics = trainer._compute_rollout_offpolicy_metrics(proximal, behavior, mask)
    log_ratio, weight = trainer._get_rollout_is_correction(proximal, behavior, mask)
    if weight is not None:
        metrics |= trainer._compute_is_correction_metrics(log_ratio, weight, mask)
    trainer._update_metrics({"mode": "train", "entropy": {}, "rollout_correction": metrics})
    return weight, mask, _logged(trainer._metrics["train"])


@quiet()
def swift_off_policy_mask(
    current: Tensor, behavior: Tensor, advantages: Tensor, mask: Tensor, off_policy_sequence_mask_delta: float
) -> Tensor:
    """GRPOTrainer._compute_off_policy_sequence_mask with one advantage per row: True for the rows it keeps."""
    trainer = _swift_trainer({"off_policy_sequence_mask_delta": off_policy_sequence_mask_delta})
    return trainer._compute_off_policy_sequence_mask(current, behavior, mask, advantages)


@quiet()
def swift_loss(
    current: Tensor,
    proximal: Tensor | None,
    advantages: Tensor,
    mask: Tensor,
    *,
    behavior: Tensor | None = None,
    reference: Tensor | None = None,
    num_items_in_batch: int | None = None,
    loss_type: str = "grpo",
    beta: float = 0.0,
    **settings: Any,
) -> Loss:
    """GRPOTrainer._compute_loss_and_metrics, rollout correction included. `settings` are fields of its GRPOConfig.

    Its command line fills in `beta` 0.04 when none is given; here a KL term needs `beta` and `reference`.
    """
    settings |= {"loss_type": loss_type, "beta": beta}
    trainer = _swift_trainer(settings, _get_per_token_logps_and_entropies=lambda *_, **__: (current, None))
    rows = len(mask)
    batch = swift().data.GRPOBatch(
        completion_mask=mask,
        truncated_mask=torch.zeros(rows, dtype=torch.bool),
        seq_lengths=mask.sum(-1),
        old_per_token_logps=proximal,
        ref_per_token_logps=reference,
        rollout_per_token_logps=behavior,
        advantages=advantages,
        num_items_in_batch=mask.sum() if num_items_in_batch is None else torch.tensor(num_items_in_batch),
    )
    loss, metrics = trainer._compute_loss_and_metrics(None, {}, batch)
    trainer._update_metrics(metrics)
    return loss, _logged(trainer._metrics["train"])


@quiet()
def swift_advantage(
    rewards_per_func: Tensor, num_generations: int, reward_weights: list[float] | None = None, **settings: Any
) -> Tensor:
    """compute_advantages, one per row; rows of a prompt are consecutive."""
    weights = torch.ones(rewards_per_func.shape[1]) if reward_weights is None else torch.tensor(reward_weights)
    advantages, _ = swift().advantage.compute_advantages(rewards_per_func, weights, num_generations, **settings)
    return advantages


@quiet()
def swift_advantage_ragged(
    rewards_per_func: Tensor, group: Tensor, reward_weights: list[float] | None = None, **settings: Any
) -> Tensor:
    """compute_advantages_dynamic: groups of any size and order, every row its own request."""
    weights = torch.ones(rewards_per_func.shape[1]) if reward_weights is None else torch.tensor(reward_weights)
    prompts, requests = [str(g) for g in group.tolist()], [str(i) for i in range(len(group))]
    dynamic = swift().advantage.compute_advantages_dynamic
    advantages, _ = dynamic(rewards_per_func, weights, prompts, requests, **settings)
    return advantages
