"""Log-probs from logits that exist already, as a differentiable step over some tokens at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from trimtab.core.head import HeadEntries
from trimtab.core.ratio import working_type
from trimtab.log_probs.picked_logits import HeadLogits, Support, entries_by_tile, head_gradient
from trimtab.log_probs.softmax import RunningSoftmax, logit_gradient, scaling


class GivenLogits(Function):
    """Log-probs and entropy from logits, some tokens at a time; gradients for the logits and the temperature."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        logits: Tensor,
        temperature: Tensor | None,
        places: Tensor,
        counted: Tensor,
        with_entropy: bool,
        chunk: int,
        support: HeadEntries | None,
        restricted: Tensor | None,
        head: HeadEntries | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Log-probs of the targets at `places`, entropies, log-probs of the head's entries."""
        ctx.height = _height(logits, chunk)
        dtype = working_type(logits)
        scale = None if temperature is None else scaling(temperature, dtype)
        scratch = logits.new_empty(ctx.height, logits.shape[-1], dtype=dtype)
        running = RunningSoftmax(places, dtype, torch.empty_like(scratch).view(-1) if with_entropy else None)
        by_token = {"size": logits.shape[-1], "height": 1, "width": logits.shape[-1]}
        ctx.support = None
        if support is not None and restricted is not None:
            ctx.support = Support(restricted, entries_by_tile(support, restricted, **by_token))
        ctx.entries = None if head is None else entries_by_tile(head, counted, **by_token)
        picked = None if ctx.entries is None else HeadLogits(ctx.entries, dtype)
        for rows, block in _blocks(logits, ctx.height):
            tile = scratch[: len(block)]
            scaled = block if scale is None else torch.mul(block, scale[rows].unsqueeze(-1), out=tile)
            if ctx.support is not None:
                scaled = tile.copy_(scaled)
                ctx.support.restrict(rows.start, 0, tile)
            if picked is not None:
                picked.take(rows.start, 0, scaled)
            running.take(rows, 0, scaled, tile)
        entropy, found = running.entropy(counted) if with_entropy else None, running.head_log_probs(picked)
        ctx.save_for_backward(logits, temperature, places, counted, running.logsumexp(), entropy, found)
        ctx.set_materialize_grads(False)
        return running.log_probs(counted), entropy, found

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None, grad_head: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Gradients of the logits, in one buffer, and of the temperature."""
        logits, temperature, places, counted, logsumexp, entropy, found = ctx.saved_tensors
        grads = logit_gradient(
            grad_log_probs,
            grad_entropy,
            places=places,
            counted=counted,
            temperature=temperature,
            logsumexp=logsumexp,
            entropy=entropy,
            head=head_gradient(ctx.entries, found, grad_head),
        )
        gradient = torch.empty_like(logits, memory_format=torch.contiguous_format)
        by_token = gradient.view(len(places), logits.shape[-1])
        grad_temperature = torch.zeros_like(logsumexp) if ctx.needs_input_grad[1] else None
        scratch = None if gradient.dtype == grads.factor.dtype else grads.factor.new_empty(ctx.height, logits.shape[-1])
        spare = None if grads.by_entropy is None else grads.factor.new_empty(ctx.height * logits.shape[-1])
        for rows, block in _blocks(logits, ctx.height):
            tile = by_token[rows] if scratch is None else scratch[: len(block)]
            # A token out of the loss may hold anything; one in it that holds NaN has a logsumexp that says so.
            tile.copy_(block).nan_to_num_(nan=0.0, posinf=0.0, neginf=-torch.inf)
            if grads.scale is not None:
                tile.mul_(grads.scale[rows].unsqueeze(-1))
            if ctx.support is not None:
                ctx.support.restrict(rows.start, 0, tile)
            grads.grad(rows, 0, tile, tile, spare).mul_(grads.factor[rows].unsqueeze(-1))
            if scratch is not None:
                by_token[rows] = tile
            if grad_temperature is not None and grads.scale is not None:
                finite = torch.nan_to_num(block, nan=0.0, posinf=0.0, neginf=0.0)
                grad_temperature[rows] = -grads.scale[rows] * (tile * finite).sum(-1)
        return (
            gradient,
            None if grad_temperature is None else grad_temperature.to(temperature.dtype),
            *[None] * 7,
        )


def _blocks(logits: Tensor, height: int) -> Iterator[tuple[slice, Float[Tensor, "tokens entries"]]]:
    """The logits of some tokens at a time, as views, and which of all tokens these are."""
    start = 0
    for page in _pages(logits):
        for block in page.split(height):
            yield slice(start, start + len(block)), block
            start += len(block)


def _pages(logits: Tensor) -> list[Float[Tensor, "tokens entries"]]:
    """The logits as matrices without copying them: a slice such as `logits[:, :-1]` has no flat view."""
    if logits.ndim <= 2 or logits.is_contiguous():
        return [logits.view(-1, logits.shape[-1]) if logits.ndim != 2 else logits]
    return [page for part in logits.unbind(0) for page in _pages(part)]


def _height(logits: Tensor, chunk: int) -> int:
    """Tokens worked on at a time; all of them under a compiler, which fuses the steps and would unroll the loop."""
    tokens = logits.numel() // logits.shape[-1]
    return max(1, tokens if torch.compiler.is_compiling() else min(tokens, chunk // logits.shape[-1]))
