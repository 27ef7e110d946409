"""From log-probs to finite log-ratios: the one place where missing values and masks are dealt with.

Past this file every number is finite and every mask is an indicator (1.0 or 0.0), so a product with an indicator is
exact. That is also what makes it fast: on a CPU a boolean `where` costs eight times a float product.
"""

from __future__ import annotations

import math
from collections.abc import Callable

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
