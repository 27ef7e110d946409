"""A function of nobody's framework: tensors by their names, one number with a gradient out."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def plain_step(
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
    """`function(current, proximal, behavior, mask, advantages, **settings)` gives a loss, or a loss and a dictionary of metrics.

    A function that also takes `step_tokens` (and `step_rows`), the trained tokens (rows) of the whole step, is summed over
    micro-batches. One that does not can only know its own: it is averaged over them, as gradient accumulation does.
    """
    import inspect

    names = inspect.signature(function).parameters
    counts = {"step_tokens": int(mask.sum()), "step_rows": int(mask.any(1).sum())}
    counts = {name: count for name, count in counts.items() if name in names}
    leaf, total, metrics = current.clone().requires_grad_(), 0.0, {}
    for rows in split:
        found = function(
            current=leaf[rows],
            proximal=proximal[rows],
            behavior=behavior[rows],
            mask=mask[rows],
            advantages=advantages[rows],
            **counts,
            **settings,
        )
        loss, logged = found if isinstance(found, tuple) else (found, {})
        loss = loss if counts else loss / len(split)
        loss.backward()
        total += loss.item()
        metrics = {name: float(value) for name, value in logged.items()}
    return {"loss": total, "gradient": leaf.grad, "metrics": metrics}


def plain_advantages(
    function: Any, *, rewards: Tensor, mask: Tensor, group: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function(rewards, mask, group, **settings)` gives an advantage per row `[rows]`, or per token `[rows, width]`."""
    found = function(rewards=rewards, mask=mask, group=group, **settings)
    return {"advantages": found if found.dim() == 1 else (found * mask).sum(1) / mask.sum(1).clamp(min=1)}


def plain_ages(
    function: Any, *, versions: Tensor, mask: Tensor, learner: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function(versions, mask, learner, **settings)` gives an age per row; NaN where no version is known (−1)."""
    return {"ages": function(versions=versions, mask=mask, learner=int(learner), **settings).float()}
