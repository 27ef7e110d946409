"""trimtab itself: what holds of others' code is asked of ours by the same questions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.check.subject import Asked, Setup, Subject
from trimtab.config.presets import preset


def own_step(
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
    """`function` has the signature of policy_loss; every micro-batch is divided by the counts of the step."""
    from trimtab import Denominator, correct

    correction, whole, counted = settings.get("correction"), None, mask
    if correction is not None:
        whole = correct(
            correction, behavior=behavior, proximal=proximal, current=current, advantages=advantages, mask=mask
        )
        counted = whole.trained
    denominator = Denominator.of([counted[rows] for rows in split], proximal=[proximal[rows] for rows in split])
    leaf, total, metrics = current.clone().requires_grad_(), 0.0, {}
    for rows in split:
        found = function(
            settings.get("loss", "clip"),
            current=leaf[rows],
            proximal=proximal[rows],
            behavior=behavior[rows],
            mask=mask[rows],
            advantages=advantages[rows],
            correction=None if whole is None else whole.part(torch.tensor(rows)),
            reduction=settings.get("reduction"),
            denominator=denominator,
        )
        found.loss.backward()
        total += found.loss.item()
        metrics = found.metrics
    return {"loss": total, "gradient": leaf.grad, "metrics": metrics}


def own_advantages(
    function: Any, *, rewards: Tensor, mask: Tensor, group: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function` has the signature of advantages; a row without a trained token is not kept."""
    from trimtab import Grpo

    found = function(Grpo(**settings), rewards=rewards, mask=mask, group=group, kept=mask)
    return {"advantages": found.rows}


def own_ages(
    function: Any, *, versions: Tensor, mask: Tensor, learner: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function` has the signature of staleness."""
    found = function(versions, mask, learner=int(learner), **settings)
    return {"ages": found.rows.masked_fill(~found.dated, float("nan"))}


def _setup(loss: str, correction: str | None, reduction: str, **more: Any) -> Setup:
    settings = {"loss": loss, "correction": correction, "reduction": reduction}
    return Setup(f"{loss}, {correction or 'uncorrected'}, {reduction}", settings, **more)


SUBJECT = Subject(
    name="trimtab",
    distribution="trimtab",
    tried=(),
    functions={
        "step": Asked(
            "trimtab:policy_loss",
            own_step,
            (
                _setup("clip", "token-tis", "token-mean", rule=preset("token-tis")),
                _setup("clip", "seq-tis", "seq-mean-token-mean", rule=preset("seq-tis")),
                _setup("gspo", "geo-rs+token-mis", "token-mean", rejects=True),
            ),
        ),
        "advantages": Asked(
            "trimtab:advantages", own_advantages, (Setup("grpo, baseline kept", {"baseline": "kept"}),)
        ),
        "ages": Asked("trimtab:staleness", own_ages, (Setup("defaults"),)),
    },
)
