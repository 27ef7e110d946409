# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""slime: three import paths on its command line, the plan under `trimtab:` in the file of `--custom-config-path`.

--use-tis --custom-tis-function-path trimtab.plugins.slime.tis                      the weight, into slime's own loss
--loss-type custom_loss --custom-loss-function-path trimtab.plugins.slime.loss      the whole loss
--custom-advantage-function-path trimtab.plugins.slime.sample_advantages            advantages, beside either

Samples arrive as one tensor each, responses only; a loss is summed over samples, and slime divides by the counts of the step.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from trimtab.advantage.estimate import advantages
from trimtab.config.plan import Plan
from trimtab.core.correct import correct
from trimtab.core.reduce import Denominator
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Reading
from trimtab.errors import ConfigError
from trimtab.losses.policy import policy_loss
from trimtab.plugins.hook import Hook
from trimtab.plugins.metrics import PREFIX, as_floats, logged_metrics

TRIED = "624b824a"
SLIMES_OWN = (
    "slime keeps its own loss here: --loss-type custom_loss --custom-loss-function-path trimtab.plugins.slime.loss."
)
ESTIMATES = "Set --custom-advantage-function-path trimtab.plugins.slime.sample_advantages."
REDUCTION = "It is slime's --calculate-per-token-loss."
WEIGHT = Hook(
    place="slime's trimtab",
    keys=frozenset({"correction"}),
    policies=frozenset({"proximal", "behavior"}),
    elsewhere={
        "current": "Current log-probs do not reach this hook.",
        "loss": SLIMES_OWN,
        "kl": SLIMES_OWN,
        "entropy_bonus": SLIMES_OWN,
        "reduction": REDUCTION,
        "advantage": ESTIMATES,
        "shaping": ESTIMATES,
    },
    counts_kept="slime divides by the tokens of each rollout before rejection.",
    whole_step=False,
    sees_advantages=False,
)
LOSS = Hook(
    place="slime's trimtab",
    keys=frozenset({"correction", "loss", "kl", "entropy_bonus"}),
    elsewhere={"reduction": REDUCTION, "advantage": ESTIMATES, "shaping": ESTIMATES},
    counts_kept="slime divides by the tokens of each rollout before rejection.",
    whole_step=False,
)
ADVANTAGE = Hook(
    place="slime's trimtab",
    keys=frozenset({"correction", "advantage", "shaping"}),
    policies=frozenset({"proximal", "behavior"}),
    elsewhere={"current": "Current log-probs are not known before the step."}
    | dict.fromkeys(("loss", "kl", "entropy_bonus"), SLIMES_OWN)
    | {"reduction": REDUCTION},
    sees_advantages=False,
)
"""A correction says who is kept, where `baseline: kept` asks; its weight acts in the other hooks."""
HOOKS = {
    "tis": ("custom_tis_function_path", WEIGHT),
    "loss": ("custom_loss_function_path", LOSS),
    "sample_advantages": ("custom_advantage_function_path", ADVANTAGE),
}
"""By the function's name: the argument that names it, and what it can honour."""
OWN_KEYS = (
    *("use_tis", "tis_clip", "tis_clip_low", "use_rollout_logprobs", "use_opsm", "opsm_delta", "advantage_estimator"),
    *("pg_loss_type", "eps_clip", "eps_clip_high", "eps_clip_c", "calculate_per_token_loss", "use_kl_loss"),
    *("kl_loss_coef", "kl_loss_type", "use_unbiased_kl", "entropy_coef"),
)
"""What of slime's arguments says its loss."""
INSIDE = {
    "use_score_centering": "The head of the sampler's distribution does not arrive there",
    "custom_pg_loss_reducer_function_path": "The whole loss is reduced by sample or by token",
}
"""What acts inside slime's own loss only, and why not in ours."""


def tis(
    *,
    args: Any,
    pg_loss: Tensor,
    train_log_probs: list[Tensor],
    rollout_log_probs: list[Tensor],
    loss_masks: list[Tensor],
    **_: Any,
) -> tuple[Tensor, list[Tensor], dict[str, Tensor]]:
    """slime's hook for importance sampling: the weighted loss, the masks that stay, and metrics per token."""
    plan = _plan(args, "tis")
    if plan.correction is None:
        raise ConfigError(
            f"{WEIGHT.place} needs a correction, got none. Write `trimtab: geo-rs+token-tis` into --custom-config-path."
        )
    mask, bounds = _pack(loss_masks)
    out = correct(
        plan.correction,
        proximal=torch.cat(train_log_probs),
        behavior=torch.cat(rollout_log_probs),
        mask=mask,
        cu_seqlens=bounds,
    )
    weighted = torch.where(out.weight > 0, pg_loss * out.weight, torch.zeros_like(pg_loss))
    parts = out.kept.split([len(each) for each in loss_masks])
    stay = [given * kept.to(given.dtype) for given, kept in zip(loss_masks, parts, strict=True)]
    return weighted, stay, _per_token(plan, out.weight, out.kept, out.log_r)


def _per_token(plan: Plan, weight: Tensor, kept: Tensor, log_r: Tensor) -> dict[str, Tensor]:
    """slime takes the mean of each metric over the tokens of a sample: only what is one per token can be logged."""
    found = {"weight": weight, "kept_fraction": kept.float(), "drift/abs_log_r": log_r.abs()}
    if plan.metrics == "all":
        held = log_r.clamp(-20.0, 20.0)
        found |= {"drift/kl": -log_r, "drift/k3": held.expm1() - held, "ratio/mean": held.exp()}
    return {f"{PREFIX}{name}": value for name, value in found.items()}


def loss(args: Any, batch: Any, logits: Tensor, sum_of_sample_mean: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """slime's custom loss: the plan's, summed over the samples of this micro-batch; what it leaves out is as slime's arguments say."""
    plan = _plan(args, "loss")
    for key, why in INSIDE.items():
        if getattr(args, key, None):
            option = f"--{key.replace('_', '-')}"
            raise ConfigError(
                f"{LOSS.place} needs a run without {option}, got it. {why}; trimtab.plugins.slime.tis goes beside it."
            )
    own_settings = {key: value for key in OWN_KEYS if _is_plain(value := getattr(args, key, None))}
    own = _own(json.dumps(plan.settings()), json.dumps(own_settings))
    correction, kl = plan.correction or own.correction, plan.kl or own.kl
    bonus = plan.entropy_bonus or own.entropy
    current, entropy = _log_probs(args, batch, logits, with_entropy=bonus is not None)
    mask, bounds = _pack(batch["loss_masks"])
    by_token = bool(args.calculate_per_token_loss)
    if not by_token:
        _check_whole_rollouts(batch)
    given = batch.get("log_probs")
    behavior = batch.get("rollout_log_probs")
    found = policy_loss(
        cast("Any", plan.loss or own.loss),
        current=current,
        proximal=torch.cat(given) if given else current.detach(),
        behavior=torch.cat(behavior) if behavior and correction is not None else None,
        reference=torch.cat(batch["ref_log_probs"]) if kl is not None else None,
        entropy=entropy,
        mask=mask,
        advantages=torch.cat(batch["advantages"]),
        correction=correction,
        reduction="token-sum" if by_token else "seq-mean-token-mean",
        kl=kl,
        entropy_bonus=bonus,
        denominator=Denominator(1.0, 1.0),
        cu_seqlens=bounds,
    )
    # slime adds up what micro-batches return and divides by the tokens, or samples, of the step
    count = mask.sum() if by_token else torch.tensor(len(bounds) - 1.0, device=mask.device)
    ours = {name: value * count for name, value in logged_metrics(plan, found.metrics, frozenset({"mean"})).items()}
    named = {"loss": found.loss.detach(), **ours}
    floats = as_floats(named)
    return found.loss, {name: found.loss.new_tensor(floats[name]) for name in named}


def sample_advantages(args: Any, rollout_data: dict[str, Any]) -> None:
    """slime's custom advantages: the plan's estimator on this rank's samples and, for groups that are spread, those of the others."""
    plan = _plan(args, "sample_advantages")
    if plan.advantage is None or not plan.advantage.from_rewards:
        raise ConfigError(
            f"{ADVANTAGE.place} needs an advantage of one reward per sample, got {getattr(plan.advantage, 'kind', 'none')}. "
            "Name one, such as grpo."
        )
    if getattr(args, "rewards_normalization", False):
        raise ConfigError(
            f"{ADVANTAGE.place} needs rewards as they were given, got them normalised. Add --disable-rewards-normalization."
        )
    mask, bounds = _pack(rollout_data["loss_masks"])
    kept = None
    if plan.correction is not None:
        proximal, behavior = rollout_data.get("log_probs"), rollout_data.get("rollout_log_probs")
        if not proximal or not behavior:
            raise ConfigError(f"{ADVANTAGE.place} needs log-probs of both sides beside a correction, got one. Drop it.")
        out = correct(
            plan.correction,
            proximal=torch.cat(proximal),
            behavior=torch.cat(behavior),
            mask=mask,
            cu_seqlens=bounds,
        )
        kept = out.kept
    rewards = torch.tensor(rollout_data["rewards"], dtype=torch.float32, device=mask.device)
    indices = torch.tensor(rollout_data["sample_indices"], device=mask.device)
    result = advantages(
        plan.advantage,
        rewards=rewards,
        mask=mask,
        group=indices // int(args.n_samples_per_prompt),
        kept=kept,
        shaping=plan.shaping,
        cu_seqlens=bounds,
        process_group=_ranks(),
    )
    sizes = [len(each) for each in rollout_data["loss_masks"]]
    parts = list(result.advantages.split(sizes))
    rollout_data["advantages"], rollout_data["returns"] = parts, parts


def _log_probs(args: Any, batch: Any, logits: Tensor, *, with_entropy: bool) -> tuple[Tensor, Tensor | None]:
    """The current policy's, by slime's own function."""
    from slime.backends.megatron_utils import loss as theirs

    replay = getattr(theirs, "get_rollout_top_p_logprob_kwargs", None)
    _, found = theirs.get_log_probs_and_entropy(
        logits,
        args=args,
        unconcat_tokens=batch["unconcat_tokens"],
        total_lengths=batch["total_lengths"],
        response_lengths=batch["response_lengths"],
        with_entropy=with_entropy,
        **({} if replay is None else replay(args, batch)),
    )
    return torch.cat(found["log_probs"]), torch.cat(found["entropy"]) if with_entropy else None


def _pack(masks: list[Tensor]) -> tuple[Tensor, Tensor]:
    """All samples end to end: their mask, and where each begins."""
    lengths = torch.tensor([0, *(len(mask) for mask in masks)], device=masks[0].device)
    return torch.cat([each.bool() for each in masks]), lengths.cumsum(0)


def _check_whole_rollouts(batch: Any) -> None:
    """A mean per sample is ours only where a rollout is one sample."""
    sums = batch.get("rollout_mask_sums")
    own = torch.stack([mask.sum() for mask in batch["loss_masks"]])
    if sums is not None and not torch.equal(torch.as_tensor(sums).to(own).clamp(min=1), own.clamp(min=1)):
        raise ConfigError(
            f"{LOSS.place} needs rollouts of one sample each, got some in parts. Add --calculate-per-token-loss, or use the weight alone."
        )


def _ranks() -> Any:
    """The ranks among which samples are divided; None where there is one."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return None
    from megatron.core import mpu

    return mpu.get_data_parallel_group()


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str)


@lru_cache
def _own(settings: str, text: str) -> Reading:
    """slime's own arguments; its correction only where the plan has none."""
    plan, own_settings = Plan.of(json.loads(settings)), json.loads(text)
    if plan.correction is not None:
        own_settings = {
            key: value
            for key, value in own_settings.items()
            if not key.startswith(("use_tis", "tis_", "use_opsm", "opsm_"))
        }
    own = read("slime", own_settings)
    for refused in own.refused:
        if getattr(plan, refused.part, None) is None and refused.part != "advantage":
            raise ConfigError(f"{LOSS.place} needs a {refused.part}, got none. {refused.text}")
    LOSS.check_parts(plan.correction or own.correction, plan.loss or own.loss)
    return own


def _plan(args: Any, name: str) -> Plan:
    """The plan as far as this hook acts on it; a key is refused where no hook of ours that the run names acts on it."""
    hook = HOOKS[name][1]
    if getattr(args, "context_parallel_size", 1) > 1:
        raise ConfigError(
            f"{hook.place} needs context_parallel_size 1, got {args.context_parallel_size}. Samples arrive in parts, and gates look at "
            "whole ones."
        )
    others = {
        key
        for other, (option, each) in HOOKS.items()
        if getattr(args, option, None) == f"{__name__}.{other}"
        for key in each.keys
    }
    return _checked_plan(name, json.dumps(getattr(args, "trimtab", None)), frozenset(others - hook.keys))


@lru_cache
def _checked_plan(name: str, text: str, elsewhere: frozenset[str]) -> Plan:
    return HOOKS[name][1].check(Plan.of(json.loads(text)).model_copy(update=dict.fromkeys(elsewhere)))
