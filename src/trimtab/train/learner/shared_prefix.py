"""The Llama and Qwen2 family over groups of responses, with gradient: what a group's rows have in common is worked out once.

prompt less its last token, once per group ─► keys, values ──────────────┐
last prompt token + response less its last, per row ─► queries, keys, values ─► attention ─► hidden states, one per response token

A row's own tokens are those whose states predict its response, so every state that leaves the last layer is used, and the
shared tokens, which are there only to be seen, leave it as keys and values. Tokens are packed: padding exists inside
attention only. The weights are the model's own; nothing is kept between calls but the rotation of each position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as nnf
from transformers import PreTrainedModel

from trimtab.train.engines.hf.llama import fits, paired, rotations
from trimtab.train.learner.row_attention import PackingPlan, seen
from trimtab.train.learner.rows import Rows


class SharedPrefix:
    """The trunk of such a model, as a function of rows."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.trunk = cast("Any", model.base_model)
        attention = self.trunk.layers[0].self_attn
        self.size = int(attention.head_dim)
        self.heads = attention.q_proj.out_features // self.size
        self.kv = attention.k_proj.out_features // self.size
        self.eps = float(self.trunk.norm.variance_epsilon)
        self.rotations: Tensor | None = None

    def __call__(self, plan: PackingPlan) -> Float[Tensor, "own size"]:
        """The state that predicts each response token, packed."""
        weight = self.trunk.embed_tokens.weight
        turn = self._rotations(plan.reach, weight)[plan.positions]
        stream = nnf.embedding(plan.tokens, weight)
        *inner, last = self.trunk.layers
        for layer in inner:
            stream = self._rest(layer, stream, seen(self._qkv(layer, stream), turn, plan, self.kv))
        own = seen(self._qkv(last, stream), turn, plan, self.kv, last=True)
        return normal(self._rest(last, stream[plan.prefix.number :], own), self.trunk.norm, self.eps)

    def plan(self, rows: Rows) -> PackingPlan:
        """Where the tokens of these rows go."""
        return PackingPlan.of(rows, self.trunk.embed_tokens.weight.dtype)

    def _qkv(self, layer: Any, stream: Tensor) -> Float[Tensor, "tokens heads size"]:
        """Queries, keys and values, one below the other; the channels of the first two in pairs."""
        attention, size = layer.self_attn, self.size
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        made = normed_linears(stream, layer.input_layernorm, self.eps, parts, (size, size, 0))
        return made.view(len(stream), -1, size)

    def _rest(self, layer: Any, stream: Tensor, inner: Tensor) -> Tensor:
        """What follows attention: its projection, then the gated MLP, each added to the stream."""
        mlp = layer.mlp
        stream = _added(stream, inner, layer.self_attn.o_proj)
        parts = (mlp.gate_proj, mlp.up_proj)
        both = normed_linears(stream, layer.post_attention_layernorm, self.eps, parts, (0, 0))
        return _added(stream, gated(both), mlp.down_proj)

    def _rotations(self, width: int, like: Tensor) -> Complex[Tensor, "width pairs"]:
        if self.rotations is None or len(self.rotations) < width or self.rotations.device != like.device:
            rope = self.trunk.rotary_emb
            made = rotations(rope.inv_freq.to(like.device), float(rope.attention_scaling), -(-width // 64) * 64)
            self.rotations = made.to(torch.complex128) if like.dtype == torch.float64 else made
        return self.rotations


def shared_prefix(model: PreTrainedModel) -> SharedPrefix | None:
    """The fast trunk of a model it knows and agrees with on a few tokens; None for any other."""
    config: Any = model.config
    checkpointing = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    if not fits(model) or config.attention_dropout or checkpointing:
        return None
    linears = [module for name, module in model.base_model.named_modules() if name.endswith("_proj")]
    if any(type(each) is not nn.Linear for each in linears):  # adapters, quantised weights
        return None
    found = SharedPrefix(model)
    return found if _agrees(found, model) else None


@torch.no_grad()
def _agrees(fast: SharedPrefix, model: PreTrainedModel) -> bool:
    """Whether the states of two prompts, three responses, are those of the model itself."""
    device = fast.trunk.embed_tokens.weight.device
    ids = (torch.arange(3 * 9, device=device).view(3, 9) * 5) % int(model.config.vocab_size)
    ids[1, :4] = ids[0, :4]
    prompts, lengths = (torch.tensor(each, device=device) for each in ((4, 4, 1), (5, 2, 8)))
    rows = Rows.bare(ids, prompts, lengths, torch.tensor([0, 0, 1], device=device))
    training = model.training
    model.eval()
    whole = cast("Tensor", fast.trunk(input_ids=ids, use_cache=False).last_hidden_state).float()
    made = fast(fast.plan(rows)).float().split(lengths.tolist())
    model.train(training)
    share = 1e-4 if model.dtype in (torch.float32, torch.float64) else 0.1
    pairs = zip(made, whole, prompts.tolist(), lengths.tolist(), strict=True)
    return all(
        torch.allclose(one, other[prompt - 1 : prompt - 1 + length], rtol=0.0, atol=share * float(whole.std()))
        for one, other, prompt, length in pairs
    )


def _added(stream: Tensor, inner: Tensor, linear: nn.Linear) -> Tensor:
    """The stream plus a linear of `inner`."""
    result = torch.addmm(stream, inner, linear.weight.t())
    bias = cast("Tensor | None", linear.bias)
    return result if bias is None else result + bias


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
