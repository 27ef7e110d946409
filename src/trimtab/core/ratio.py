"""From log-probs to finite log-ratios: the one place where missing values and masks are dealt with; and sums of them in float64.

Past this file every number is finite and every mask is an indicator (1.0 or 0.0), so a product with an indicator is
exact. That is also what makes it fast: on a CPU a boolean `where` costs eight times a float product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor


def indicator(mask: Tensor, dtype: torch.dtype) -> Float[Tensor, "*tokens"]:
    """1.0 where a mask of any type is set, 0.0 elsewhere."""
    if mask.dtype == torch.bool:
        return mask.view(torch.uint8).to(dtype)  # this cast vectorises, the one from bool does not
    return (mask != 0).view(torch.uint8).to(dtype)


def is_finite(value: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """1.0 where a number is finite, 0.0 where it is NaN or infinite."""
    return (value - value).eq_(0.0)


def above(value: Tensor, bound: float | Tensor) -> Tensor:
    """1.0 where value > bound, 0.0 elsewhere; never differentiated, as all four of these."""
    return _compare(torch.gt, value, bound)


def below(value: Tensor, bound: float | Tensor) -> Tensor:
    """1.0 where value < bound, 0.0 elsewhere."""
    return _compare(torch.lt, value, bound)


def at_least(value: Tensor, bound: float | Tensor) -> Tensor:
    """1.0 where value >= bound, 0.0 elsewhere."""
    return _compare(torch.ge, value, bound)


def at_most(value: Tensor, bound: float | Tensor) -> Tensor:
    """1.0 where value <= bound, 0.0 elsewhere."""
    return _compare(torch.le, value, bound)


def _compare(comparison: Callable[..., Tensor], value: Tensor, bound: float | Tensor) -> Tensor:
    # written straight into floats: the cast from bool, which this spares, is the slow part
    return comparison(value.detach(), bound, out=torch.empty_like(value, requires_grad=False))


def is_inside(
    value: Float[Tensor, "*n"], lower: float | Tensor | None, upper: float | Tensor | None
) -> Float[Tensor, "*n"]:
    """1.0 where lower <= value <= upper, 0.0 elsewhere; a bound left out is open, and NaN is never inside.

    A bound is one number, or one for each value.
    """
    sides = [at_least(value, lower)] if lower is not None else []
    sides += [at_most(value, upper)] if upper is not None else []
    if not sides:
        return at_most(value, torch.inf)
    return sides[0] if len(sides) == 1 else sides[0].mul_(sides[1])


def zero_outside(
    value: Tensor, counted: Float[Tensor, "*tokens"], *, out: Tensor | None = None
) -> Float[Tensor, "*tokens"]:
    """The value where counted, 0 elsewhere, whatever stood there; written into `out` where that is given."""
    finite = torch.nan_to_num(value.to(counted.dtype), nan=0.0, posinf=0.0, neginf=0.0, out=out)
    return finite.mul_(counted) if finite.shape == counted.shape else finite * counted


def saturating_cast(value: Float[Tensor, "*n"], kind: torch.dtype) -> Float[Tensor, "*n"]:
    """A number in a narrower type: rounded once, and its largest number where it lies beyond, never inf."""
    most = torch.finfo(kind).max
    return value.clamp(-most, most).to(kind)


def log_bound(bound: float | None) -> float | None:
    """A bound on a ratio as one on its logarithm, so that a bound met exactly is inside; None: open, as below 0 nothing lies."""
    return math.log(bound) if bound else None


def working_type(*tensors: Tensor | None) -> torch.dtype:
    """float64 if a tensor is, float32 otherwise: near −20 a bfloat16 log-prob moves in steps of 0.125."""
    wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if wide else torch.float32


# Added up in their own type, numbers in float32 lose digits, or overflow. On a CPU torch makes a float64 copy of everything it adds up in
# float64, and fresh memory costs more than the sum. So there it is done a block at a time, in one scratch; a float64 sum of float32 numbers
# is the same to 1e-15 however it is cut.
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
