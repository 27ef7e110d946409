"""Backward recurrences along sequences, without a step per token: x[t] = add[t] + decay[t] · x[t + 1]."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.core.layout import Layout, Packed

BLOCK = 64


def reverse_scan(decay: Float[Tensor, " n"], add: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """x[t] = add[t] + decay[t] · x[t + 1], with x = 0 past the end.

    In blocks side by side: each is scanned from 0, what enters it from the right is a recurrence over blocks, one level
    up. n tokens take about BLOCK · log(n) / log(BLOCK) steps, and nothing is divided, so nothing overflows.
    """
    n = len(add)
    blocks = -(-n // BLOCK)
    x, reach = _columns(add, blocks), _columns(decay, blocks)
    for step in range(BLOCK - 2, -1, -1):
        x[step].addcmul_(reach[step], x[step + 1])
        reach[step].mul_(reach[step + 1])  # now the product to the block's end
    if blocks > 1:
        heads = reverse_scan(reach[0].clone(), x[0].clone())
        entering = torch.cat([heads[1:], heads.new_zeros(1)])
        x.addcmul_(reach, entering)
    return x.t().reshape(-1)[:n]


def _columns(flat: Tensor, blocks: int) -> Tensor:
    """A copy as [BLOCK, blocks], block b in column b, padded with 0 at the end."""
    padded = flat.new_zeros(BLOCK, blocks)
    whole = len(flat) // BLOCK
    padded[:, :whole] = flat[: whole * BLOCK].view(whole, BLOCK).t()
    if whole < blocks:
        padded[: len(flat) - whole * BLOCK, -1] = flat[whole * BLOCK :]
    return padded


def ends(layout: Layout, trained: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """1 at the last slot of each sequence, trained or not."""
    if isinstance(layout, Packed):
        bounds = trained.new_zeros(layout.tokens + 1).index_fill_(0, layout.cu_seqlens.long(), 1.0)
        return bounds[1:]
    found = torch.zeros_like(trained)
    found[..., -1:] = 1.0
    return found
