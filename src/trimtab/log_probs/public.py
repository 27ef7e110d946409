"""Log-probs of chosen tokens: from hidden states without ever holding the logits of all of them, or from given logits."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.head import Head, HeadEntries
from trimtab.core.inputs import check_all, check_device, takes_arrays
from trimtab.core.ratio import working_type
from trimtab.errors import ConfigError, InputError
from trimtab.log_probs.from_hidden import LmHead
from trimtab.log_probs.from_logits import GivenLogits
from trimtab.log_probs.restricted import PairSoftmax, SupportedTokens

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
    keeps the whole vocabulary (as prime-rl does) and is False in `in_support`. Only the logits of these ids are looked at, so that short
    supports cost far less than none; it reads on the host a few times, and does not compile.
    `head` asks for the log-probs of these ids too, in the same pass and with gradients; its own log-probs are not looked at.
    `chunk` bounds the logits held at a time: memory and speed, never the result.
    A frozen weight costs no product in backward, and entropy that is only looked at costs nothing there.
    """
    _check_head(hidden, weight, bias)
    _check_targets(targets, hidden, "hidden", len(weight))
    flat = targets.reshape(-1).long()
    ids = None if vocabulary is None else _ids(vocabulary, targets)
    _check_asked("support", support, targets, len(weight), vocabulary)
    _check_asked("head", head, targets, len(weight), vocabulary)
    states, most = hidden.reshape(len(flat), hidden.shape[-1]), _chunk(chunk, hidden)
    temperatures, asked = _temperatures(temperature, targets, working_type(hidden, weight)), head and head.entries()
    restricted = None
    if support is not None:
        tokens = SupportedTokens.of(support, flat, len(weight))
        restricted = tokens.restricted
        found = _over_support(tokens, states, weight, bias, temperatures, flat, entropy, most, asked)
    else:
        places = flat if ids is None else _places(flat, ids, len(weight))
        *found, _ = LmHead.apply(states, weight, bias, temperatures, ids, places, flat >= 0, entropy, most, asked, None)
    log_probs, entropies, of_head = found
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
    _check_asked("support", support, targets, logits.shape[-1], None)
    _check_asked("head", head, targets, logits.shape[-1], None)
    restricted = None if support is None else support.contains(targets).reshape(-1)
    log_probs, entropies, of_head = GivenLogits.apply(
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


def _over_support(
    tokens: SupportedTokens,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    temperature: Tensor | None,
    targets: Tensor,
    with_entropy: bool,
    chunk: int,
    head: HeadEntries | None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Log-probs, entropies and those of a head's entries where some softmaxes run over a support."""
    whole, own = tokens.order[: tokens.pairs.first], tokens.order[tokens.pairs.first :]
    log_probs, entropy, of_head, logits = LmHead.apply(
        hidden.index_select(0, tokens.order),
        weight,
        bias,
        temperature if temperature is None else temperature.index_select(0, whole),
        None,
        targets[whole],
        torch.ones_like(whole, dtype=torch.bool),
        with_entropy,
        chunk,
        head and tokens.whole_head(head),
        tokens.pairs,
    )
    chosen, own_entropy, pairs = PairSoftmax.apply(
        logits,
        temperature if temperature is None else temperature.index_select(0, own),
        tokens.pairs,
        tokens.chosen,
        with_entropy,
    )
    if head is not None:
        own_head = tokens.of_head(head, pairs)
        of_head = own_head if of_head is None else torch.where(tokens.restricted[head.token], own_head, of_head)
    return (
        tokens.spread(torch.cat([log_probs, chosen])),
        tokens.spread(torch.cat([entropy, own_entropy])) if with_entropy else None,
        of_head,
    )


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


def _check_asked(name: str, head: Head | None, targets: Tensor, entries: int, vocabulary: Tensor | None) -> None:
    """A head that log-probs run over, or whose own are asked for."""
    if head is None:
        return
    if vocabulary is not None:
        raise ConfigError(f"{name} needs the whole vocabulary, got `vocabulary` beside it. Pass one of the two.")
    head.check_tokens(targets)
    _check_ids(f"{name} needs", head.ids, head.ids < entries, f"ids below {entries} (the vocabulary)")


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
