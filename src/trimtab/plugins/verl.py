# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""verl: `policy_loss.loss_mode=trimtab`, `+algorithm.rollout_correction.trimtab=…`, `algorithm.adv_estimator=trimtab`.

verl loads this by itself, in the driver and in every worker, through the entry point group `verl.plugins`.

driver   old, rollout log-probs ─► correct_batch ─► response_mask, rollout_is_weights ─► trimtab_advantages
worker   log-probs, weights, mask ────────────────────────────────────────────────────► trimtab_loss
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from trimtab.advantage.estimate import advantages
from trimtab.config.advantages import ReMax
from trimtab.config.correction import Correction
from trimtab.config.plan import Plan
from trimtab.core.correct import Corrected, correct
from trimtab.core.reduce import Denominator
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Reading
from trimtab.errors import ConfigError, FrameworkError
from trimtab.logged import logged
from trimtab.losses.policy import policy_loss
from trimtab.plugins.metrics import as_floats, logged_metrics
from trimtab.plugins.record import recorder_of
from trimtab.plugins.verl_plan import (
    DRIVER,
    LOSS,
    advantage_plan,
    check_votes,
    plan_in,
    refuse_two_corrections,
    rejection_way,
    whole_configuration,
)
from trimtab.plugins.versions import require

TRIED = ("0.9.1",)
try:
    require("verl", "verl", *TRIED)
except FrameworkError as error:
    logging.getLogger(__name__).warning("%s", error)  # verl says at level DEBUG only why a plug-in did not load
    raise

from verl.trainer.ppo import core_algos, rollout_corr_helper  # noqa: E402
from verl.workers.config import PolicyLossConfig  # noqa: E402


@dataclass
class LossSettings(PolicyLossConfig):
    """verl's `policy_loss` with one key more; `policy_loss._target_=trimtab.plugins.verl.LossSettings` puts it in place."""

    trimtab: Any = None

    def __post_init__(self) -> None:
        LOSS.check(plan_in(self.trimtab))


# --- the worker: a loss -------------------------------------------------------------------------------------------------


@core_algos.register_policy_loss("trimtab")
def trimtab_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of one micro-batch, its share of the step; what the plan leaves out is as the actor's own keys say."""
    plan = LOSS.check(plan_in(config.policy_loss.get("trimtab", None)))
    own = _own(_settings(config, loss_agg_mode), response_mask.shape[-1])
    loss, reduction = plan.loss or own.loss, plan.reduction or own.reduction
    LOSS.check_parts(plan.correction, loss, reduction)
    correction = _decisions(plan.correction, rollout_is_weights, response_mask)
    bypass = plan.correction is not None and plan.correction.policies == "bypass"
    counts = config.global_batch_info
    found = policy_loss(
        cast("Any", loss),
        current=log_prob,
        proximal=None if bypass else old_log_prob,
        behavior=old_log_prob if bypass else None,
        advantages=advantages,
        mask=response_mask,
        correction=correction,
        reduction=reduction,
        denominator=Denominator(
            counts["batch_num_tokens"], counts["global_batch_size"], averaged_over=counts["dp_size"]
        ),
    )
    theirs = logged(Reading("verl", correction=plan.correction, loss=loss), found.metrics)
    # verl averages what a loss returns over micro-batches and ranks, whatever it is
    return found.loss, as_floats(theirs | logged_metrics(plan, found.metrics, frozenset({"mean"})))


def _decisions(rule: Correction | None, weights: Tensor | None, mask: Tensor) -> Correction | Corrected | None:
    if weights is None:
        return rule
    if rule is not None:
        raise ConfigError(
            "verl's policy_loss.trimtab needs no correction beside that of the driver, got two. Drop one: they would multiply."
        )
    return Corrected.of_weights(weights, mask=mask)


def _settings(config: Any, loss_agg_mode: str) -> tuple[tuple[str, Any], ...]:
    """The actor's own keys that say a loss, under verl's full names."""
    names = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "loss_scale_factor")
    given = {name: config.get(name, None) for name in names} | {"loss_agg_mode": loss_agg_mode}
    return tuple((f"actor_rollout_ref.actor.{name}", value) for name, value in given.items() if value is not None)


@lru_cache
def _own(settings: tuple[tuple[str, Any], ...], width: int) -> Reading:
    return read("verl", dict(settings), width=width)


# --- the driver: a correction -------------------------------------------------------------------------------------------

_THEIRS = getattr(
    rollout_corr_helper.compute_rollout_correction_and_add_to_batch,
    "theirs",
    rollout_corr_helper.compute_rollout_correction_and_add_to_batch,
)


def correct_batch(batch: Any, rollout_corr_config: Any) -> tuple[Any, dict[str, float]]:
    """verl's `compute_rollout_correction_and_add_to_batch`, where `trimtab` is among its settings; else verl's own."""
    asked = rollout_corr_config.get("trimtab", None)
    if asked is None:
        return _THEIRS(batch, rollout_corr_config)
    plan = DRIVER.check(plan_in(asked))
    _record(plan, batch)
    if plan.correction is None:
        return _THEIRS(batch, rollout_corr_config)
    refuse_two_corrections(rollout_corr_config)
    rule, root = plan.correction, whole_configuration(rollout_corr_config)
    way = rejection_way(rule, root)
    check_votes(plan, way)
    given = batch.batch
    out = correct(
        rule,
        proximal=given["old_log_probs"],
        behavior=given["rollout_log_probs"],
        mask=given["response_mask"],
    )
    stays = out.kept if way == "mask" else out.trained
    given["response_mask"] = stays.to(given["response_mask"].dtype)
    given["rollout_is_weights"] = out.weight
    theirs = logged(Reading("verl", correction=rule), out.metrics)
    return batch, as_floats(theirs | logged_metrics(plan, out.metrics))


def _record(plan: Plan, batch: Any) -> None:
    """The batch as it came, before rejection, into the plan's folder; the v1 driver has no token ids here."""
    recorder = recorder_of(plan, DRIVER.place)
    if recorder is None:
        return
    given = batch.batch
    rewards = given.get("token_level_rewards", None)
    recorder.add(
        step=next(_STEPS),
        tokens=given.get("input_ids", None),
        attention=given.get("attention_mask", None) if "input_ids" in given else None,
        mask=given["response_mask"],
        behavior=given["rollout_log_probs"],
        proximal=given["old_log_probs"],
        reference=given.get("ref_log_prob", None),
        rewards=None if rewards is None else rewards.sum(-1),
        groups=batch.non_tensor_batch.get("uid", None),
    )


_STEPS = count()
"""Batches corrected in this process."""
correct_batch.theirs = _THEIRS  # type: ignore[attr-defined]
# verl has no registry for this one. Every caller binds the name after plug-ins are loaded.
rollout_corr_helper.compute_rollout_correction_and_add_to_batch = correct_batch

# --- the driver: advantages ---------------------------------------------------------------------------------------------


@core_algos.register_adv_est("trimtab")
def trimtab_advantages(
    token_level_rewards: Tensor,
    response_mask: Tensor,
    config: Any = None,
    index: Any = None,
    reward_baselines: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Advantages and returns; with baseline kept, a row that the correction rejected has no vote."""
    plan = advantage_plan(config)
    estimator = plan.advantage
    assert estimator is not None
    group = None if index is None else torch.from_numpy(np.unique(np.asarray(index), return_inverse=True)[1])
    found = advantages(
        estimator,
        rewards=token_level_rewards.sum(-1),
        mask=response_mask.bool(),
        group=None if group is None else group.to(response_mask.device),
        kept=response_mask.bool(),
        shaping=plan.shaping,
        baselines=reward_baselines if isinstance(estimator, ReMax) else None,
    )
    return found.advantages, found.advantages if found.returns is None else found.returns
