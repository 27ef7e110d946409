"""Log-probs of chosen tokens: from hidden states without ever holding the logits of all of them, or from given logits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from trimtab.core.arrays import takes_arrays
from trimtab.core.checks import check_all, check_device
from trimtab.core.entries import HeadLogits, Support, entries_by_tile, head_gradient
from trimtab.core.head import Head, HeadEntries
from trimtab.core.lm_head import LmHead
from trimtab.core.ratio import working_type
from trimtab.core.softmax import RunningSoftmax, logit_gradient, scaling
from trimtab.errors import ConfigError, InputError

_LOGITS_ON_CPU = 1 << 21
"""Logits held at a time unless told: 8 MB, which stay in the cache. A GPU wants more work in each launch."""
_LOGITS_ELSEWHERE = 1 << 26


@dataclass(frozen=True, eq=False)
class SelectedLogProbs:
    """Log-probs of the chosen tokens, and the entropy of their distributions if it was asked for."""

    log_probs: Float[Tensor, "*tokens"]
    """float32, or float64 if an input is; 0 where the target is ignored."""
    entropy: Float[Tensor, "*tokens"] | None = None
    """In nats; 0 where the target is ignored."""
    in_support: Bool[Tensor, "*tokens"] | None = None
    """Where the softmax ran over the token's own support; None if none was given."""
    head: Tensor | None = None
    """Log-probs of the ids of `head`, in its shape: −inf where there is no id, where the target is ignored, and outside the support."""


@takes_arrays("hidden", "weight", "bias")
def selected_log_probs(
    hidden: Float[Tensor, "*tokens width"],
    weight: Float[Tensor, "entries width"],
    targets: Int[Tensor, "*tokens"],
    *,
    temperature: float | Tensor = 1.0,
    bias: Float[Tensor, " entries"] | None = None,
    entropy: bool = False,
    vocabulary: Int[Tensor, " ids"] | None = None,
    support: Head | None = None,
    head: Head | None = None,
    chunk: int | None = None,
) -> SelectedLogProbs:
    """Log-probs of the targets under softmax((hidden @ weight.T + bias) / temperature), differentiable in all four.

    `hidden[i]` is the state that predicts `targets[i]`: the shift by one is the caller's. A negative target is ignored: it
    gives 0 and no gradient, whatever stands in its hidden state; so does a token whose results receive a gradient of 0.
    `temperature` is one number or one per token. `vocabulary` restricts the softmax to these ids; a target outside them
    gives −inf, without gradient. `support` restricts each token's softmax to the ids that its sampler could have drawn
    (top-k, top-p), so that the log-prob is of the policy that sampled; a token whose target is not among its own, or that has none,
    keeps the whole vocabulary (as prime-rl does) and is False in `in_support`. It costs one read on the host, and does not compile.
    `head` asks for the log-probs of these ids too, in the same pass and with gradients; its own log-probs are not looked at.
    `chunk` bounds the logits held at a time: memory and speed, never the result.
    A frozen weight costs no product in backward, and entropy that is only looked at costs nothing there.
    """
    _check_head(hidden, weight, bias)
    _check_targets(targets, hidden, "hidden", len(weight))
    flat = targets.reshape(-1).long()
    ids = None if vocabulary is None else _ids(vocabulary, targets)
    restricted = _restricted(support, targets, len(weight), vocabulary)
    _check_asked(head, targets, len(weight), vocabulary)
    log_probs, entropies, of_head = LmHead.apply(
        hidden.reshape(len(flat), hidden.shape[-1]),
        weight,
        bias,
        _temperatures(temperature, targets, working_type(hidden, weight)),
        ids,
        flat if ids is None else _places(flat, ids, len(weight)),
        flat >= 0,
        entropy,
        _chunk(chunk, hidden),
        support and support.entries(),
        restricted,
        head and head.entries(),
    )
    return _selected(targets, log_probs, entropies, restricted, head, of_head)


@takes_arrays("logits")
def log_probs_of(
    logits: Float[Tensor, "*tokens entries"],
    targets: Int[Tensor, "*tokens"],
    *,
    temperature: float | Tensor = 1.0,
    entropy: bool = False,
    support: Head | None = None,
    head: Head | None = None,
    chunk: int | None = None,
) -> SelectedLogProbs:
    """Log-probs of the targets under softmax(logits / temperature), for logits that exist already.

    Ignored targets, `temperature`, `support`, `head` and `chunk` as in `selected_log_probs`. Backward needs the logits as they were given
    and nothing else of their size, and makes their gradient in one buffer.
    """
    if logits.ndim == 0 or logits.shape[-1] == 0 or not logits.is_floating_point():
        raise InputError(
            f"logits need floating-point numbers [*tokens, entries], got {logits.dtype} {tuple(logits.shape)}. "
            "Pass the output of the head."
        )
    _check_targets(targets, logits, "logits", logits.shape[-1])
    flat = targets.reshape(-1).long()
    restricted = _restricted(support, targets, logits.shape[-1], None)
    _check_asked(head, targets, logits.shape[-1], None)
    log_probs, entropies, of_head = _Logits.apply(
        logits,
        _temperatures(temperature, targets, working_type(logits)),
        flat,
        flat >= 0,
        entropy,
        _chunk(chunk, logits),
        support and support.entries(),
        restricted,
        head and head.entries(),
    )
    return _selected(targets, log_probs, entropies, restricted, head, of_head)


def _selected(
    targets: Tensor,
    log_probs: Tensor,
    entropy: Tensor | None,
    in_support: Tensor | None,
    head: Head | None,
    of_head: Tensor | None,
) -> SelectedLogProbs:
    shape = targets.shape
    return SelectedLogProbs(
        log_probs.view(shape),
        None if entropy is None else entropy.view(shape),
        None if in_support is None else in_support.view(shape),
        None if of_head is None or head is None else of_head.view(head.ids.shape),
    )


def _restricted(
    support: Head | None, targets: Tensor, entries: int, vocabulary: Tensor | None
) -> Bool[Tensor, " tokens"] | None:
    """The tokens whose softmax runs over their support."""
    if support is None:
        return None
    if vocabulary is not None:
        raise ConfigError("support needs the whole vocabulary, got `vocabulary` beside it. Pass one of the two.")
    support.check_tokens(targets)
    _check_ids("support needs", support.ids, support.ids < entries, f"ids below {entries} (the vocabulary)")
    return support.contains(targets).reshape(-1)


def _check_asked(head: Head | None, targets: Tensor, entries: int, vocabulary: Tensor | None) -> None:
    """A head whose log-probs are asked for."""
    if head is None:
        return
    if vocabulary is not None:
        raise ConfigError("head needs the whole vocabulary, got `vocabulary` beside it. Pass one of the two.")
    head.check_tokens(targets)
    _check_ids("head needs", head.ids, head.ids < entries, f"ids below {entries} (the vocabulary)")


class _Logits(Function):
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


def _temperatures(temperature: float | Tensor, targets: Tensor, dtype: torch.dtype) -> Float[Tensor, " tokens"] | None:
    """The temperature of each token; None where it is 1 throughout."""
    if isinstance(temperature, Tensor):
        if temperature.shape not in (targets.shape, ()) or not temperature.is_floating_point():
            raise InputError(
                f"temperature needs one floating-point number, or one per token {tuple(targets.shape)}, "
                f"got {temperature.dtype} {tuple(temperature.shape)}."
            )
        check_device("temperature", temperature, targets.device)
        return temperature.expand(targets.shape).reshape(-1)
    if not (temperature > 0 and math.isfinite(temperature)):
        raise ConfigError(
            f"temperature needs to be above 0 and finite, got {temperature}. Greedy sampling has no log-probs."
        )
    return (
        None if temperature == 1.0 else torch.full((targets.numel(),), temperature, dtype=dtype, device=targets.device)
    )


def _chunk(chunk: int | None, tokens: Tensor) -> int:
    if chunk is None:
        return _LOGITS_ON_CPU if tokens.device.type == "cpu" else _LOGITS_ELSEWHERE
    if chunk < 1:
        raise ConfigError(f"chunk needs to be at least 1, got {chunk}. It is the number of logits held at a time.")
    return chunk


def _ids(vocabulary: Tensor, targets: Tensor) -> Int[Tensor, " ids"]:
    if vocabulary.ndim != 1 or len(vocabulary) == 0 or vocabulary.dtype not in (torch.int32, torch.int64):
        raise InputError(
            f"vocabulary needs one dimension of int32 or int64 ids, at least one, got {vocabulary.dtype} "
            f"{tuple(vocabulary.shape)}. Turn a mask into ids with mask.nonzero().squeeze(1)."
        )
    check_device("vocabulary", vocabulary, targets.device)
    return vocabulary.long()


def _places(targets: Int[Tensor, " tokens"], ids: Int[Tensor, " ids"], entries: int) -> Int[Tensor, " tokens"]:
    """Where each target stands among the ids of a vocabulary; −1 if it does not, or is ignored."""
    _check_ids("vocabulary needs", ids, (ids >= 0) & (ids < entries), f"ids from 0 to {entries - 1}")
    order = torch.arange(len(ids), device=ids.device)
    table = torch.full((entries,), -1, device=ids.device).index_copy_(0, ids, order)
    _check_ids("vocabulary needs", ids, table[ids] == order, "each id once")
    return torch.where(targets >= 0, table[targets.clamp(min=0)], -1)


def _check_ids(needs: str, ids: Tensor, fit: Tensor, rule: str) -> None:
    check_all(fit, f"{needs} {rule}", lambda: f"{int(ids[~fit][0])}.")


def _check_head(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    named = {"hidden": hidden, "weight": weight}
    if bias is not None:
        named["bias"] = bias
    for name, tensor in named.items():
        if not tensor.is_floating_point():
            raise InputError(f"{name} needs floating-point numbers, got {tensor.dtype}.")
        check_device(name, tensor, hidden.device)
    if hidden.ndim == 0 or weight.ndim != 2 or len(weight) == 0 or weight.shape[-1] != hidden.shape[-1]:
        raise InputError(
            f"weight needs shape [entries, width] with the width of hidden {tuple(hidden.shape)}, got {tuple(weight.shape)}. "
            "Pass lm_head.weight as it is, one row per vocabulary entry."
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise InputError(f"bias needs one number per vocabulary entry ({len(weight)},), got {tuple(bias.shape)}.")


def _check_targets(targets: Tensor, tokens: Tensor, name: str, entries: int) -> None:
    if targets.shape != tokens.shape[:-1]:
        raise InputError(
            f"targets need one id per token {tuple(tokens.shape[:-1])} of {name} {tuple(tokens.shape)}, got {tuple(targets.shape)}."
        )
    if targets.dtype not in (torch.int32, torch.int64):
        raise InputError(f"targets need int32 or int64 ids, got {targets.dtype}.")
    check_device("targets", targets, tokens.device)
    _check_ids(
        "targets need", targets, targets < entries, f"ids below {entries} (the vocabulary), or negative to be ignored"
    )
