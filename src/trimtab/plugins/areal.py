# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""AReaL: `from trimtab.plugins.areal import PPOTrainer`, with one argument more: `PPOTrainer(config, trimtab="geo-rs+token-tis", …)`.

AReaL's actor hands its engine a loss and what weighs it; the engines here put trimtab's in their place. They stand at module level,
so that the single controller finds them by name in its workers, and the plan travels in the actor's configuration.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib import import_module
from itertools import count
from typing import Any, cast

import torch
from torch import Tensor

from trimtab.config.losses import Objective, Reduction
from trimtab.config.plan import Plan
from trimtab.core.reduce import Denominator
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Reading
from trimtab.errors import ConfigError
from trimtab.logged.areal import STATISTICS, WEIGHED
from trimtab.logged.table import logged
from trimtab.logged.views import CorrectionView, LossView, fill
from trimtab.losses.policy import policy_loss
from trimtab.plugins.hook import BY_ROWS_AND_TOKENS, Hook
from trimtab.plugins.metrics import as_floats, logged_metrics
from trimtab.plugins.record import recorder_of
from trimtab.plugins.versions import require

TRIED = ("1.0.4",)
require("AReaL", "areal", *TRIED)

from areal.api.cli_args import PPOActorConfig  # noqa: E402
from areal.engine.fsdp_engine import FSDPPPOActor  # noqa: E402
from areal.trainer.ppo import actor as theirs  # noqa: E402
from areal.trainer.ppo.stats import infer_token_denominator  # noqa: E402
from areal.trainer.rl_trainer import PPOTrainer as _PPOTrainer  # noqa: E402
from areal.utils import stats_tracker  # noqa: E402

OWN = "AReaL pays it in the reward: set actor.kl_ctl."
LOSS = Hook(
    place="AReaL's trimtab",
    keys=frozenset({"correction", "loss", "reduction", "record"}),
    elsewhere={
        "kl": OWN,
        "entropy_bonus": "Entropies arrive without gradient.",
        "advantage": "Set actor.adv_norm and reward_norm.",
        "reduction": "AReaL takes a weighted mean over micro-batches, by their tokens or rows: a sum has no such weight.",
    },
    reductions=BY_ROWS_AND_TOKENS - {"token-sum"},
    counts_kept="AReaL weighs a micro-batch by its tokens before the loss is called.",
    whole_step=False,
)
LOSS_KEYS = (
    *("eps_clip", "eps_clip_higher", "c_clip", "rejection_sampling", "m2_threshold", "importance_sampling_level"),
    *("use_sapo_loss", "sapo_tau_pos", "sapo_tau_neg", "use_decoupled_loss", "recompute_logprob", "prox_logp_method"),
)
"""What of the actor's configuration says its loss."""


@dataclass
class TrimtabActorConfig(PPOActorConfig):
    """AReaL's actor with one key more: the plan as JSON."""

    trimtab: str = "{}"


def with_plan(config: Any, plan: Plan) -> TrimtabActorConfig:
    """The actor's configuration with the plan in it, after both were checked."""
    values = {each.name: getattr(config, each.name) for each in fields(PPOActorConfig) if each.init}
    actor_config = TrimtabActorConfig(**values, trimtab=json.dumps(plan.settings()))
    plan_and_reading(actor_config)
    return actor_config


def plan_and_reading(config: Any) -> tuple[Plan, Reading]:
    """The plan, and AReaL's own settings for what it leaves out; refused where they cannot be honoured."""
    plan = LOSS.check(Plan.of(json.loads(config.trimtab)))
    own_settings = {name: _plain(getattr(config, name, None)) for name in LOSS_KEYS}
    if plan.correction is not None:
        for key in ("rejection_sampling", "m2_threshold"):
            own_settings.pop(key)
    own = read("areal", {"actor": {key: value for key, value in own_settings.items() if value is not None}})
    rule = plan.correction or own.correction
    if rule is not None and "proximal" in rule.needs and not config.use_decoupled_loss:
        raise ConfigError(
            f"{LOSS.place} needs actor.use_decoupled_loss true for a decoupled correction, got false. Then there are three policies."
        )
    if rule is not None and not config.use_decoupled_loss and config.recompute_logprob and "behavior" in rule.needs:
        raise ConfigError(
            f"{LOSS.place} needs actor.recompute_logprob false for a bypass correction, got true. It overwrites the sampler's log-probs."
        )
    LOSS.check_parts(rule, plan.loss or own.loss, plan.reduction or own.reduction)
    return plan, own


def _plain(value: Any) -> Any:
    return (
        {each.name: getattr(value, each.name) for each in fields(value)}
        if hasattr(value, "__dataclass_fields__")
        else value
    )


class TrimtabEngine:
    """What an engine of AReaL's does otherwise: the actor's loss and its weight are the plan's."""

    config: Any
    actor: Any

    def train_batch(self, input_: Any, loss_fn: Callable[..., Tensor], loss_weight_fn: Callable[..., Tensor]) -> Any:
        """AReaL's `train_batch`, its loss exchanged where it is the actor's."""
        if getattr(loss_fn, "func", None) is theirs.grpo_loss_fn:
            record_minibatch(self.config, input_, cast("Any", self).get_version())
            loss_fn, loss_weight_fn = self._exchange(cast("functools.partial[Tensor]", loss_fn))
        return cast("Any", super()).train_batch(input_, loss_fn, loss_weight_fn)

    def _exchange(self, loss_fn: functools.partial[Tensor]) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
        plan, own = plan_and_reading(self.config)
        reduction = cast("Reduction", plan.reduction or own.reduction)
        weight = number_of_rows if reduction.mode.startswith("seq") else number_of_tokens
        settings = {key: loss_fn.keywords[key] for key in ("prox_logp_method", "current_version")}
        return functools.partial(areal_loss, plan=plan, own=own, **settings), weight


_MINIBATCHES = count()
"""Mini-batches trained in this process."""


def record_minibatch(config: Any, data: dict[str, Any], version: int | None) -> None:
    """A padded mini-batch into the plan's folder. AReaL has taken the rewards out of it by then.

    Index t of AReaL's columns is the token after t; in records it is token t.
    """
    recorder = recorder_of(Plan.of(json.loads(getattr(config, "trimtab", "{}"))), LOSS.place)
    if recorder is None:
        return
    columns = {"mask": "loss_mask", "behavior": "logprobs", "proximal": "prox_logp", "advantages": "advantages"}
    moved = {name: data[key].roll(1, -1) for name, key in columns.items() if data.get(key) is not None}
    recorder.add(
        step=next(_MINIBATCHES),
        tokens=data["input_ids"],
        attention=data["attention_mask"],
        versions=data.get("versions"),
        learner_version=version,
        **moved,
    )


class FSDPActor(TrimtabEngine, FSDPPPOActor):
    """AReaL's FSDP actor with the plan's loss."""


def __getattr__(name: str) -> Any:  # pyright: ignore[reportUnusedFunction]
    """The same for engines that need packages of their own; made when asked for, and found by name."""
    if name not in ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, engine = ELSEWHERE[name]
    base = getattr(import_module(module), engine)
    engine_class = type(name, (TrimtabEngine, base), {"__module__": __name__, "__doc__": FSDPActor.__doc__})
    globals()[name] = engine_class
    return engine_class


ELSEWHERE = {
    "MegatronActor": ("areal.engine.megatron_engine", "MegatronPPOActor"),
    "ArchonActor": ("areal.experimental.engine.archon_engine", "ArchonPPOActor"),
}
ENGINES = {"fsdp": "FSDPActor", "megatron": "MegatronActor", "archon": "ArchonActor"}


class PPOTrainer(_PPOTrainer):
    """AReaL's trainer; `trimtab` is a preset's name, a mapping, or the path of a YAML file."""

    def __init__(self, config: Any, *args: Any, trimtab: Any = None, **kwargs: Any) -> None:
        self.plan = Plan.of(trimtab)
        config.actor = with_plan(config.actor, self.plan)
        super().__init__(config, *args, **kwargs)

    def _create_train_engine(self, actor_config: Any, alloc: Any) -> Any:
        if not isinstance(actor_config, TrimtabActorConfig):
            return super()._create_train_engine(actor_config, alloc)
        from areal.utils.environ import is_single_controller

        engine = _engine(ENGINES[alloc.backend])
        engine = (
            engine.as_controller(actor_config, self.scheduler)
            if is_single_controller()
            else engine(config=actor_config)
        )
        engine.create_process_group(parallel_strategy=alloc.parallel)
        return engine


def _engine(name: str) -> Any:
    return globals().get(name) or __getattr__(name)


def number_of_tokens(data: dict[str, Any]) -> Tensor:
    """What AReaL weighs a micro-batch by: its trained tokens."""
    return data["loss_mask"].count_nonzero()


def number_of_rows(data: dict[str, Any]) -> Tensor:
    """Its sequences with trained tokens, for means over sequences."""
    mask = data["loss_mask"].bool()
    if mask.ndim == 2:
        return mask.any(-1).sum()
    before = torch.cat([mask.new_zeros(1, dtype=torch.long), mask.long().cumsum(0)])
    return before[data["cu_seqlens"].long()].diff().count_nonzero()


def areal_loss(
    logprobs: Tensor,
    entropy: Tensor,
    input_data: dict[str, Any],
    *,
    plan: Plan,
    own: Reading,
    prox_logp_method: str,
    current_version: int | None,
    vocab_min_logits: Tensor | None = None,
    vocab_max_logits: Tensor | None = None,
) -> Tensor:
    """The mean over a micro-batch, packed or padded; the engine weighs it by the share of the step that the micro-batch is."""
    behavior, mask, versions = input_data["logprobs"], input_data["loss_mask"].bool(), input_data.get("versions")
    given = input_data.get("prox_logp")
    proximal = theirs._resolve_proximal_logp(
        prox_logp_gt=given,
        prox_logp_method=prox_logp_method,
        old_logp=behavior,
        logprobs=logprobs.detach(),
        versions=versions,
        current_version=current_version,
    )
    loss, rule = cast("Objective", plan.loss or own.loss), plan.correction or own.correction
    found = policy_loss(
        loss,
        current=logprobs,
        proximal=proximal,
        behavior=None if rule is None else behavior,
        entropy=entropy.detach(),
        mask=mask,
        advantages=input_data["advantages"],
        correction=rule,
        reduction=plan.reduction or own.reduction,
        denominator=Denominator(number_of_tokens(input_data), number_of_rows(input_data)),
        cu_seqlens=input_data.get("cu_seqlens") if mask.ndim == 1 else None,
    )
    view = _log_as_areal(loss, found.metrics, input_data, logprobs.detach(), behavior, entropy)
    if vocab_min_logits is not None and vocab_max_logits is not None:
        stats_tracker.stat(vocab_min_logits=vocab_min_logits, vocab_max_logits=vocab_max_logits, denominator="n_tokens")
    stays = view.kept.bool() if view.seen is not None and view.seen.weighed is not None else mask
    theirs._log_proximal_approximation_stats(
        prox_logp_method=prox_logp_method,
        prox_logp_gt=given,
        old_logp=behavior,
        logprobs=logprobs.detach(),
        versions=versions,
        current_version=current_version,
        compute_logp_mask=stays,
    )
    if versions is not None and current_version is not None:
        theirs._log_version_staleness_stats(
            versions=versions, current_version=current_version, version_metrics_mask=stays
        )
    # the tracker averages scalars over micro-batches, whatever they are
    stats_tracker.scalar(**as_floats(logged_metrics(plan, found.metrics, frozenset({"mean"}))))
    return found.loss


def _log_as_areal(
    loss: Objective, metrics: Any, data: dict[str, Any], current: Tensor, behavior: Tensor, entropy: Tensor
) -> LossView:
    """AReaL's own statistics into its tracker, which gathers them over micro-batches and ranks."""
    seen = CorrectionView(metrics.correction.decisions) if hasattr(metrics.correction, "decisions") else None
    view = LossView(loss, metrics.terms, metrics.surrogate, metrics, seen)
    valid, per_token = view.valid.bool(), fill(STATISTICS, view)
    stats_tracker.denominator(
        n_tokens=infer_token_denominator(data, valid),
        n_valid_tokens=valid,
        clipped_tokens=per_token["clip_ratio"].bool(),
        dual_clipped_tokens=per_token["dual_clip_ratio"].bool(),
    )
    plain = {"new_logp": current, "old_logp": behavior, "entropy": entropy.detach().float()}
    stats_tracker.stat(
        **{name: value.float() for name, value in (per_token | plain).items()}, denominator="n_valid_tokens"
    )
    clipped = per_token["clip_ratio"].bool()
    stats_tracker.stat(
        clipped_new_logp=torch.where(clipped, current, 0.0),
        clipped_old_logp=torch.where(clipped, behavior, 0.0),
        denominator="clipped_tokens",
    )
    if seen is not None and seen.weighed is not None:
        stats_tracker.denominator(unclipped_behave_tokens=(seen.trace.weight > 0) & seen.kept.bool())
        stats_tracker.stat(**fill(WEIGHED, seen), denominator="unclipped_behave_tokens")
        stats_tracker.scalar(**as_floats(logged(Reading("areal"), metrics.correction)))
    return view
