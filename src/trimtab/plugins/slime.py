# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""slime: `--use-tis --custom-tis-function-path trimtab.plugins.slime.tis`, the plan under `trimtab:` in the file of `--custom-config-path`.

slime multiplies the weights into its own loss; log-probs and masks arrive as one tensor per sample, the loss as one for all tokens.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from trimtab.config.plan import Plan
from trimtab.core.correct import correct
from trimtab.errors import ConfigError
from trimtab.plugins.hook import Hook
from trimtab.plugins.logged import PREFIX

TRIED = "624b824a"
SLIMES_OWN = "slime keeps its own loss here."
WEIGHT = Hook(
    place="slime's trimtab",
    keys=frozenset({"correction"}),
    policies=frozenset({"proximal", "behavior"}),
    elsewhere={
        "current": "Current log-probs do not reach this hook.",
        "loss": SLIMES_OWN,
        "kl": SLIMES_OWN,
        "reduction": SLIMES_OWN,
    },
    counts_kept="slime divides by the tokens of each rollout before rejection.",
    whole_step=False,
    sees_advantages=False,
)


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
    plan = _plan(json.dumps(getattr(args, "trimtab", None)))
    if getattr(args, "context_parallel_size", 1) > 1:
        raise ConfigError(
            f"{WEIGHT.place} needs context_parallel_size 1, got {args.context_parallel_size}. Samples arrive in parts, and gates look at "
            "whole ones."
        )
    lengths = torch.tensor([0, *(len(mask) for mask in loss_masks)], device=pg_loss.device)
    mask = torch.cat([each.bool() for each in loss_masks])
    assert plan.correction is not None
    out = correct(
        plan.correction,
        proximal=torch.cat(train_log_probs),
        behavior=torch.cat(rollout_log_probs),
        mask=mask,
        cu_seqlens=lengths.cumsum(0),
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


@lru_cache
def _plan(text: str) -> Plan:
    plan = WEIGHT.check(Plan.of(json.loads(text)))
    if plan.correction is None:
        raise ConfigError(
            f"{WEIGHT.place} needs a correction, got none. Write `trimtab: geo-rs+token-tis` into --custom-config-path."
        )
    return plan
