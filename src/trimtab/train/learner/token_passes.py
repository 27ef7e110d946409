"""What a decoder layer does to each token alone, in fewer passes than autograd's: a norm with the linears behind it, the MLP's gate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as nnf

from trimtab.train.engines.hf.rotary import paired

WIDE = (torch.float32, torch.float64)
"""Number types in which a norm's weight may be put into the linears behind it: the product is rounded no more than they are."""


def normal(stream: Float[Tensor, "tokens size"], norm: Any, eps: float) -> Float[Tensor, "tokens size"]:
    """The stream after a norm."""
    if stream.dtype in WIDE:
        return cast("Tensor", _Normal.apply(stream, norm.weight, eps))
    return nnf.rms_norm(stream, norm.weight.shape, norm.weight, eps)  # which works in float32 and rounds at the end


def normed_linears(
    stream: Float[Tensor, "tokens size"], norm: Any, eps: float, linears: Sequence[nn.Linear], pairs: Sequence[int]
) -> Float[Tensor, "tokens channels"]:
    """Linears of the normed stream side by side. `pairs`: the size of heads whose channels are put in pairs, of each; 0: not."""
    weights = [each.weight for each in linears]
    biases = [each.bias for each in linears if cast("Tensor | None", each.bias) is not None]
    if stream.dtype in WIDE:
        return cast("Tensor", _NormedLinears.apply(stream, norm.weight, eps, tuple(pairs), *weights, *biases))
    bias = torch.cat(_in_pairs(biases, pairs)) if biases else None
    return nnf.linear(normal(stream, norm, eps), torch.cat(_in_pairs(weights, pairs)), bias)


def gated(both: Float[Tensor, "tokens twice"]) -> Float[Tensor, "tokens inner"]:
    """silu(gate) · up of both side by side."""
    return cast("Tensor", _Gated.apply(both))


def _in_pairs(weights: Sequence[Tensor], pairs: Sequence[int]) -> list[Tensor]:
    return [paired(each, size) if size else each for each, size in zip(weights, pairs, strict=True)]


def _in_parts(joined: Tensor, sizes: Sequence[int], pairs: Sequence[int]) -> list[Tensor]:
    """The way back: what each weight or bias has of it, in the model's own order of channels."""
    return [_unpaired(each, size) if size else each for each, size in zip(joined.split(sizes), pairs, strict=True)]


def _unpaired(weight: Float[Tensor, "channels *inputs"], size: int) -> Float[Tensor, "channels *inputs"]:
    """The way back from `paired`."""
    return weight.unflatten(0, (-1, size // 2, 2)).transpose(1, 2).flatten(0, 2)


def _unit(stream: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """stream / √(mean of its squares + ε), and what it was multiplied by."""
    square = torch.linalg.vector_norm(stream, dim=-1, keepdim=True).square_()
    scale = square.div_(stream.shape[-1]).add_(eps).rsqrt_()
    return stream * scale, scale


class _Normal(Function):
    """unit · weight."""

    @staticmethod
    def forward(ctx: Any, stream: Tensor, weight: Tensor, eps: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        unit, scale = _unit(stream, eps)
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        unit, scale, weight = ctx.saved_tensors
        each = gradient * unit
        along = torch.mv(each, weight).div_(-unit.shape[-1]).unsqueeze(-1)  # the length of the unit does not change
        return (gradient * weight).addcmul_(unit, along).mul_(scale), each.sum(0), None


class _NormedLinears(Function):
    """unit · (weight of the norm · weights)ᵀ: the norm's weight meets the linears', not the tokens, and so does its gradient."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, stream: Tensor, norm: Tensor, eps: float, pairs: tuple[int, ...], *given: Tensor
    ) -> Tensor:
        """`given`: the weights, then the biases if there are any."""
        weights, biases = given[: len(pairs)], given[len(pairs) :]
        unit, scale = _unit(stream, eps)
        joined = torch.cat(_in_pairs(weights, pairs))
        scaled = joined * norm
        ctx.save_for_backward(unit, scale, norm, joined, scaled)
        ctx.pairs, ctx.sizes, ctx.is_biased = pairs, [len(each) for each in weights], bool(biases)
        if biases:
            return torch.addmm(torch.cat(_in_pairs(biases, pairs)), unit, scaled.t())
        return torch.mm(unit, scaled.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        unit, scale, norm, joined, scaled = ctx.saved_tensors
        to_scaled = torch.mm(gradient.t(), unit)
        to_norm = (to_scaled * joined).sum(0)
        to_weights = _in_parts(to_scaled.mul_(norm), ctx.sizes, ctx.pairs)
        to_biases = _in_parts(gradient.sum(0), ctx.sizes, ctx.pairs) if ctx.is_biased else []
        to_unit = torch.mm(gradient, scaled)
        along = (to_unit * unit).sum(-1, keepdim=True).div_(-unit.shape[-1])  # the length of the unit does not change
        return to_unit.addcmul_(unit, along).mul_(scale), to_norm, None, None, *to_weights, *to_biases


class _Gated(Function):
    """The gradients of gate and up are made side by side too."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        gate, up = both.chunk(2, -1)
        opened = nnf.silu(gate)
        ctx.save_for_backward(both, opened)
        return opened * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        both, opened = ctx.saved_tensors
        gate, up = both.chunk(2, -1)
        result = torch.empty_like(both)
        to_gate, to_up = result.chunk(2, -1)
        torch.mul(gradient, opened, out=to_up)
        torch.ops.aten.silu_backward.grad_input(gradient * up, gate, grad_input=to_gate)
        return result
