"""OpenRLHF: PolicyLoss is called for each micro-batch with the token and sample counts of the optimiser step."""
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.check.subject import Asked, Setup, Subject
from trimtab.config.presets import preset


def openrlhf_step(
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
    """`function` is PolicyLoss or a class like it."""
    policy_loss = function(**settings)
    counts = {"batch_num_tokens": float(mask.sum()), "global_batch_size": float(mask.any(1).sum())}
    leaf, total, metrics = current.clone().requires_grad_(), 0.0, {}
    for rows in split:
        loss, *scalars = policy_loss(
            leaf[rows],
            proximal[rows],
            advantages[rows],
            action_mask=mask[rows].float(),
            rollout_log_probs=behavior[rows],
            dp_size=1,
            **counts,
        )
        loss.backward()
        total += loss.item()
        named = zip(("ppo_clip_ratio", "ppo_kl", "vllm_kl", "is_filter_ratio"), scalars, strict=True)
        metrics = {name: float(value) for name, value in named if value is not None}
    return {"loss": total, "gradient": leaf.grad, "metrics": metrics}


def openrlhf_advantages(
    function: Any, *, rewards: Tensor, mask: Tensor, group: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function` is RemoteExperienceMaker; a prompt's rows follow each other."""
    from types import SimpleNamespace

    from openrlhf.trainer.ppo_utils.experience import Experience
    from openrlhf.trainer.ppo_utils.kl_controller import FixedKLController

    estimator = SimpleNamespace(gamma=1.0, lambd=1.0, no_std_norm=False, **settings)
    args = SimpleNamespace(
        algo=SimpleNamespace(advantage=estimator),
        reward=SimpleNamespace(clip_range=(-10.0, 10.0)),
        rollout=SimpleNamespace(n_samples_per_prompt=int((group == group[0]).sum())),
    )
    maker = function(None, None, None, None, FixedKLController(0.0), SimpleNamespace(args=args), None)
    experience = Experience(
        rewards=rewards.clone(), action_mask=mask, kl=torch.zeros(mask.shape), index=list(range(len(rewards)))
    )
    (found,) = maker.compute_advantages_and_returns([experience])
    return {"advantages": (found.advantages * mask).sum(1) / mask.sum(1).clamp(min=1)}


LEVEL, MODE, BOUNDS = "is_correction_level", "is_correction_mode", "is_correction_threshold"

SUBJECT = Subject(
    name="openrlhf",
    distribution="openrlhf",
    tried=("0.11.2",),
    packages=("openrlhf",),
    optional=("deepspeed", "vllm", "flash_attn", "peft", "ray", "torchdata", "aiohttp", "pylatexenc"),
    by_place=True,
    functions={
        "step": Asked(
            "openrlhf.models.loss:PolicyLoss",
            openrlhf_step,
            (
                Setup(
                    "is_correction: token clip, token-mean",
                    {LEVEL: "token", MODE: "clip", BOUNDS: [0.0, 2.0]},
                    preset("token-tis", upper=2.0),
                ),
                Setup(
                    "is_correction: seq mask, seq-mean",
                    {LEVEL: "seq", MODE: "mask", BOUNDS: [0.7, 1.4], "token_level_loss": False},
                    rejects=True,
                ),
            ),
        ),
        "advantages": Asked(
            "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker",
            openrlhf_advantages,
            (Setup("advantage.estimator=group_norm", {"estimator": "group_norm"}),),
        ),
    },
    not_asked={"ages": "it counts no staleness"},
    known={
        "not-finite behavior": (
            "The loss is multiplied by the mask, and 0 · NaN is NaN (OpenRLHF#1240). In the sequence gate the NaN "
            "of a masked token rejects its row."
        ),
        "not-finite proximal": "The loss is multiplied by the mask, and 0 · NaN is NaN (OpenRLHF#1240).",
        "not-finite current": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "not-finite advantages": "The loss is multiplied by the mask, and 0 · NaN is NaN.",
        "removed row": (
            "Mean and deviation are taken over all rows of a prompt, those without an action included (OpenRLHF#1239)."
        ),
        "nothing to train on": (
            "The whole step counts 0 tokens and divides by them. One empty micro-batch among others holds."
        ),
        "metrics beside padding rows": (
            "is_filter_ratio averages over all rows; the mean of a row without tokens is 0 / 0 and counts as filtered."
        ),
        "missing log-prob": (
            "NaN stays in the coefficient, and the loss of the whole step is NaN. The sequence gate drops the "
            "row, and holds."
        ),
    },
)
