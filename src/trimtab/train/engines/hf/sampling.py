"""One token per row from logits, exactly: inverse CDF of the distribution in force, with the log-probs that belong to it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as nnf

from trimtab.train.devices import to_host
from trimtab.train.messages import Floats, HeadKind, Ints, Sampling

BLOCK = 256
"""Tokens per block of the two-level search: a vocabulary is summed in float32 within blocks, in float64 over them."""

HEAD = 1024
"""The likeliest tokens among which top-p looks first; the whole vocabulary is sorted only where they hold too little."""


@dataclass(frozen=True, eq=False)
class TokenHead:
    """Ids of one token's distribution, with their log-probs, and the log of what the cut left of it."""

    ids: Ints
    log_probs: Floats
    log_mass: float


@dataclass(frozen=True, eq=False)
class Draw:
    """A token per row. Rows whose logits hold no distribution are not `sound`; what they hold otherwise means nothing."""

    tokens: Int[Tensor, "rows"]
    behavior: Float[Tensor, "rows"]
    raw: Float[Tensor, "rows"]
    sound: Bool[Tensor, "rows"]
    heads: tuple[TokenHead | None, ...] = ()
    """What was asked for of each row's distribution; empty: nothing was, or there is nothing to tell."""


def draw(
    logits: Float[Tensor, "rows vocab"],
    uniforms: Float[Tensor, "rows"],
    sampling: Sampling,
    head: HeadKind = "none",
    head_size: int = 128,
) -> Draw:
    """The token that each row's uniform number in [0, 1) falls on, its log-probs, and the head of its distribution if asked for."""
    plain = logits.float().log_softmax(-1)
    # One NaN, one +inf or nothing but -inf makes the normaliser NaN, and with it every entry of the row.
    sound = ~plain[:, 0].isnan()
    if logits.device.type != "cpu" or not bool(sound.all()):  # only the CPU can look without being waited for
        plain = torch.where(sound.unsqueeze(-1), plain, 0.0)
    if sampling.temperature == 0:
        raw, tokens = plain.max(-1)
        return Draw(tokens, torch.zeros_like(raw), raw, sound)
    log_probs = cut_log_probs(plain, sampling)
    tokens = inverse_cdf(log_probs.exp(), uniforms)
    at = tokens.unsqueeze(-1)
    raw = plain.gather(-1, at).squeeze(-1)
    behavior = raw if log_probs is plain else log_probs.gather(-1, at).squeeze(-1)
    heads = ()
    if head == "top-k":
        heads = likeliest(log_probs, head_size)
    elif head == "mask" and is_cut(sampling, plain.shape[-1]):
        heads = kept_ids(log_probs, tempered_log_probs(plain, sampling))
    return Draw(tokens, behavior, raw, sound, heads)


def is_cut(sampling: Sampling, vocabulary: int) -> bool:
    """Whether top-k or top-p takes tokens away."""
    return (sampling.top_k or vocabulary) < vocabulary or (1.0 if sampling.top_p is None else sampling.top_p) < 1


def kept_ids(log_probs: Float[Tensor, "rows vocab"], whole: Float[Tensor, "rows vocab"]) -> tuple[TokenHead, ...]:
    """The ids that each row could be drawn from; `whole` is its distribution before the cut."""
    kept = log_probs > -torch.inf
    row, ids = kept.nonzero(as_tuple=True)
    held = log_probs[row, ids]
    mass = whole.double().exp().where(kept, 0.0).sum(-1).log().float()
    counts, ids, held, mass = (each.numpy() for each in to_host([kept.sum(-1), ids.int(), held, mass]))
    ends = counts.cumsum()
    return tuple(
        TokenHead(ids[end - count : end], held[end - count : end], float(each))
        for end, count, each in zip(ends, counts, mass, strict=True)
    )


def likeliest(log_probs: Float[Tensor, "rows vocab"], size: int) -> tuple[TokenHead, ...]:
    """The likeliest ids of each row, none of probability 0."""
    values, ids = (each.numpy() for each in to_host([*log_probs.topk(min(size, log_probs.shape[-1]), -1)]))
    return tuple(
        TokenHead(row[held > -np.inf].astype(np.int32), held[held > -np.inf], 0.0)
        for row, held in zip(ids, values, strict=True)
    )


def cut_log_probs(plain: Float[Tensor, "rows vocab"], sampling: Sampling) -> Float[Tensor, "rows vocab"]:
    """Log-probs after temperature, then top-k, then top-p of what top-k left; -inf where no token can be drawn.

    Tokens as likely as the k-th stay too.
    """
    result = tempered_log_probs(plain, sampling)
    if sampling.top_k is not None and sampling.top_k < plain.shape[-1]:
        least = result.topk(sampling.top_k, -1).values[:, -1:]
        result = result.masked_fill(result < least, -torch.inf).log_softmax(-1)
    if sampling.top_p is not None and sampling.top_p < 1:
        result = result.masked_fill(~nucleus(result, sampling.top_p), -torch.inf).log_softmax(-1)
    return result


def tempered_log_probs(plain: Float[Tensor, "rows vocab"], sampling: Sampling) -> Float[Tensor, "rows vocab"]:
    """Log-probs after the temperature alone."""
    if sampling.temperature == 1:
        return plain
    # Differences to the likeliest token are at most 0: no temperature makes them overflow to +inf.
    return ((plain - plain.amax(-1, keepdim=True)) / sampling.temperature).log_softmax(-1)


def nucleus(log_probs: Float[Tensor, "rows vocab"], share: float) -> Bool[Tensor, "rows vocab"]:
    """The fewest likeliest tokens that hold `share` of the probability, one at least."""
    size = log_probs.shape[-1]
    values, order = log_probs.topk(min(HEAD, size), -1)
    held = values.double().exp().cumsum(-1)
    if size > HEAD and (log_probs.device.type != "cpu" or not bool((held[:, -1] >= share).all())):
        values, order = log_probs.sort(dim=-1, descending=True, stable=True)
        held = values.double().exp().cumsum(-1)
    inside = nnf.pad(held[:, :-1] < share, (1, 0), value=True)  # a token stays if those before it hold too little
    return torch.zeros_like(log_probs, dtype=torch.bool).scatter_(-1, order, inside)


def inverse_cdf(probs: Float[Tensor, "rows vocab"], uniforms: Float[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """The first token whose cumulative probability exceeds the uniform number; never one of probability 0."""
    share = uniforms.double().unsqueeze(-1)
    if probs.shape[-1] <= 4 * BLOCK:
        mass = probs.double().cumsum(-1)
        return _crossing(mass, share * mass[:, -1:]).squeeze(-1)
    blocks = nnf.pad(probs, (0, -probs.shape[-1] % BLOCK)).unflatten(-1, (-1, BLOCK))
    mass = blocks.sum(-1).double().cumsum(-1)
    target = share * mass[:, -1:]
    block = _crossing(mass, target)
    before = nnf.pad(mass, (1, 0)).gather(-1, block)
    inside = blocks.gather(1, block.unsqueeze(-1).expand(-1, -1, BLOCK)).squeeze(1).double().cumsum(-1)
    return (block * BLOCK + _crossing(inside, target - before)).squeeze(-1)


def _crossing(mass: Float[Tensor, "rows width"], target: Float[Tensor, "rows 1"]) -> Int[Tensor, "rows 1"]:
    """The first place where cumulative `mass` exceeds the target, held below the whole so that rounding cannot pass it."""
    whole = mass[:, -1:]
    return torch.searchsorted(mass, torch.minimum(target, whole.nextafter(whole.new_zeros(()))), right=True)
