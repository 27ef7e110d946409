"""Sums in float64 of numbers in float32: added up in their own type they lose digits, or overflow.

On a CPU torch makes a float64 copy of everything it adds up so, and fresh memory costs more than the sum. So there it is done
a block at a time, in one scratch; a float64 sum of float32 numbers is the same to 1e-15 however it is cut.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

BLOCK = 2**16
"""Numbers whose float64 copy stays in the cache."""
_EXACT = 2**20
"""Ones that torch adds up in float32 without a rounding, several times over."""


def row_sums(value: Tensor) -> Float[Tensor, " rows"]:
    """The sum of each row of `[rows, width]`, in float64; differentiable."""
    rows = max(BLOCK // max(value.shape[-1], 1), 1)
    if not _in_blocks(value) or len(value) <= rows:
        return value.sum(-1, dtype=torch.float64)
    return torch.cat([part.sum(-1) for part in _wide(value, rows)])


def sum_of(value: Tensor) -> Float[Tensor, ""]:
    """The sum of a tensor in float64."""
    if not _in_blocks(value):
        return value.sum(dtype=torch.float64)
    return torch.stack([part.sum() for part in _wide(value.flatten(), BLOCK)]).sum()


def squares_of(value: Tensor) -> Float[Tensor, ""]:
    """The sum of the squares of a tensor in float64, where no square of a float32 overflows."""
    if not _in_blocks(value):
        return value.double().square().sum()
    return torch.stack([torch.dot(part, part) for part in _wide(value.flatten(), BLOCK)]).sum()


def number_of(marks: Tensor) -> Float[Tensor, ""]:
    """How many tokens an indicator marks, in float64."""
    if not _in_blocks(marks):
        return marks.sum(dtype=torch.float64)
    return torch.stack([part.sum() for part in marks.flatten().split(_EXACT)]).sum(dtype=torch.float64)


def small_sum_of(value: Tensor) -> Float[Tensor, ""]:
    """The sum of numbers far from the ends of float32, to be added up further in float64: ten times as fast.

    Torch adds up in parts, so it is right to 1e-7 of the sum of the absolute values.
    """
    return value.sum().double()


def _wide(value: Tensor, length: int) -> Iterator[Tensor]:
    """Parts of a tensor in float64, one after the other: each is written over by the next."""
    scratch = value.new_empty((length, *value.shape[1:]), dtype=torch.float64)
    for part in value.split(length):
        yield scratch[: len(part)].copy_(part)


def _in_blocks(value: Tensor) -> bool:
    """Whether to cut: not where it is small, and where it is traced (a graph has no memory of its own to spare)."""
    plain = value.device.type == "cpu" and not value.requires_grad and not torch.compiler.is_compiling()
    return plain and value.numel() > BLOCK and value.dtype != torch.float64
