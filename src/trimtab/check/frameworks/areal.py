"""AReaL: packed tokens; the mean of each micro-batch, weighed by its share of the trained tokens as the engine does."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.check.subject import Asked, Setup, Subject
from trimtab.config.presets import preset


def areal_step(
    function: Any,
    *,
    behavior: Tensor,
    proximal: Tensor,
    current: Tensor,
    mask: Tensor,
    advantages: Tensor,
    split: list[list[int]],
    settings: dict[str, Any],
) -> dict[str, Any]:
    """`function` has the signature of ppo_actor_loss_fn; the rows are packed end to end."""
    from areal.api.cli_args import RejectionSamplingConfig

    settings = {"eps_clip": 0.2, **settings}
    if settings.get("rejection_sampling") is not None:
        settings["rejection_sampling"] = RejectionSamplingConfig(**settings["rejection_sampling"])
    leaf, total, stats = current.clone().requires_grad_(), 0.0, {}
    for rows in split:
        width = mask.shape[1]
        loss, stats = function(
            logprobs=leaf[rows].flatten(),
            proximal_logprobs=proximal[rows].flatten(),
            old_logprobs=behavior[rows].flatten(),
            advantages=advantages[rows].flatten(),
            loss_mask=mask[rows].flatten(),
            cu_seqlens=torch.arange(0, len(rows) * width + 1, width, dtype=torch.int32),
            **settings,
        )
        share = mask[rows].count_nonzero() / mask.count_nonzero().clamp(min=1)
        (loss * share).backward()
        total += (loss * share).item()
    metrics = {key: float(value) for key, value in stats.items() if isinstance(value, float)}
    return {"loss": total, "gradient": leaf.grad, "metrics": metrics}


def areal_advantages(
    function: Any, *, rewards: Tensor, mask: Tensor, group: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function` is PPOActor; a row is a prompt token, its response, and one place of padding."""
    from areal.api.cli_args import NormConfig, PPOActorConfig

    size = int((group == group[0]).sum())
    norm = NormConfig(mean_level="group", std_level="group", group_size=size)
    actor = function(PPOActorConfig(reward_norm=norm, adv_norm=None, kl_ctl=0.0, **settings), engine=None)
    rows, width = mask.shape
    trained = torch.cat([torch.zeros(rows, 1), mask.float(), torch.zeros(rows, 1)], 1)
    attention = torch.cat([torch.ones(rows, width + 1), torch.zeros(rows, 1)], 1).bool()
    batch = {"input_ids": attention.long(), "attention_mask": attention, "loss_mask": trained}
    batch |= {"rewards": rewards.clone(), "logprobs": torch.zeros(rows, width + 2)}
    batch["prox_logp"] = torch.zeros(rows, width + 2)
    found = actor._compute_advantages(batch)
    own = found["loss_mask"]
    return {"advantages": (found["advantages"] * own).sum(1) / own.sum(1).clamp(min=1)}


CLAMP = {"rejection_sampling": {"level": "token", "metric": "ratio", "action": "clamp", "upper": 2.0}}
GEOMETRIC = {
    "rejection_sampling": {"level": "sequence", "agg": "mean", "metric": "ratio", "action": "mask", "lower": 0.7, "upper": 1.4}
}  # fmt: skip
GSPO = {"importance_sampling_level": "sequence"}

SUBJECT = Subject(
    name="areal",
    distribution="areal",
    tried=("1.0.4",),
    packages=("areal",),
    optional=(
        *(
            "aiohttp",
            "flask",
            "werkzeug",
            "uvloop",
            "openai",
            "pybase64",
            "wandb",
            "swanlab",
            "trackio",
            "tensorboardX",
        ),
        *("ray", "torchdata", "datasets", "PIL", "numba", "hydra"),
    ),
    by_place=True,
    functions={
        "step": Asked(
            "areal.utils.functional.functional:ppo_actor_loss_fn",
            areal_step,
            (
                Setup("rejection_sampling: token ratio clamp", CLAMP, preset("token-tis", upper=2.0)),
                Setup("rejection_sampling: sequence ratio mask", GEOMETRIC, rejects=True),
                Setup("importance_sampling_level: sequence", GSPO),
            ),
        ),
        "advantages": Asked("areal.trainer.ppo.actor:PPOActor", areal_advantages, (Setup("reward_norm by group", {}),)),
    },
    not_asked={"ages": "staleness is counted where it logs, not by a function that returns it"},
    known={
        "not-finite proximal": (
            "`torch.where(mask, exp(x), 0)` keeps the loss finite; its backward multiplies 0 by NaN."
        ),
        "not-finite current": "`torch.where(mask, exp(x), 0)` keeps the loss finite; its backward multiplies 0 by NaN.",
        "removed row": "`reward_norm` is called without the loss mask, so a row without a trained token votes.",
        "missing log-prob": (
            "By design, as its code says: a log-ratio that is not finite becomes 0. The token is trained at "
            "weight 1, also where the gap is infinite."
        ),
    },
)
