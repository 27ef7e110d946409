"""The Llama and Qwen2 family over groups of responses, with gradient: what a group's rows have in common is worked out once.

prompt less its last token, once per group ─► keys, values ──────────────┐
last prompt token + response less its last, per row ─► queries, keys, values ─► attention ─► hidden states, one per response token

A row's own tokens are those whose states predict its response, so every state that leaves the last layer is used, and the
shared tokens, which are there only to be seen, leave it as keys and values. Tokens are packed: padding exists inside
attention only. The weights are the model's own; nothing is kept between calls but the rotation of each position.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as nnf
from transformers import PreTrainedModel

from trimtab.train.engines.hf.rotary import fits, paired, rotations
from trimtab.train.learner.packing import PackingPlan, Padding
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
        turn = turn.unsqueeze(1).repeat(1, self.heads + self.kv, 1)
        stream = nnf.embedding(plan.tokens, weight)
        *inner, last = self.trunk.layers
        for layer in inner:
            before, own = self._seen(self._qkv(layer, stream, turn), plan)
            stream = self._rest(layer, stream, own if before is None else torch.cat([before, own]))
        _, own = self._seen(self._qkv(last, stream, turn), plan, last=True)
        return self._normal(self._rest(last, stream[plan.prefix.number :], own), self.trunk.norm)

    def plan(self, rows: Rows) -> PackingPlan:
        """Where the tokens of these rows go."""
        return PackingPlan.of(rows, self.trunk.embed_tokens.weight.dtype)

    def _qkv(self, layer: Any, stream: Tensor, turn: Tensor) -> Float[Tensor, "tokens heads size"]:
        """Queries and keys, both rotated, and values, one below the other."""
        attention = layer.self_attn
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        weight = torch.cat([*(paired(each.weight, self.size) for each in parts[:2]), parts[2].weight])
        bias = None
        if parts[0].bias is not None:
            bias = torch.cat([*(paired(each.bias, self.size) for each in parts[:2]), parts[2].bias])
        made = nnf.linear(self._normal(stream, layer.input_layernorm), weight, bias)
        return _Turned.apply(made.view(len(stream), -1, self.size), turn)

    def _seen(self, qkv: Tensor, plan: PackingPlan, *, last: bool = False) -> tuple[Tensor | None, Tensor]:
        """What the shared tokens see of one another, if it is needed; what a row's own see of those and of one another."""
        queries, both, shared = _laid(qkv, plan, self.heads, last or not plan.prefix.number)
        share, hidden = self.heads // self.kv, plan.hidden
        queries = queries.transpose(1, 2)
        if share > 1:  # the heads that share keys become rows of one head's queries
            queries = queries.unflatten(1, (self.kv, share)).flatten(2, 3)
            hidden = hidden.repeat(1, 1, share, 1)
        keys, values = both.transpose(1, 2).split(self.kv, 1)
        own = nnf.scaled_dot_product_attention(queries, keys, values, attn_mask=hidden)
        own = own.unflatten(2, (share, plan.own.width)).flatten(1, 2)
        before = None if shared is None else _packed(self._before(shared), plan.prefix)
        return before, _packed(own, plan.own)

    def _before(self, shared: Float[Tensor, "groups width all size"]) -> Float[Tensor, "groups heads width size"]:
        queries, keys, values = shared.transpose(1, 2).split([self.heads, self.kv, self.kv], 1)
        if self.heads > self.kv:
            keys, values = (each.repeat_interleave(self.heads // self.kv, 1) for each in (keys, values))
        return nnf.scaled_dot_product_attention(queries, keys, values, is_causal=True)

    def _rest(self, layer: Any, stream: Tensor, seen: Tensor) -> Tensor:
        """What follows attention: its projection, then the gated MLP, each added to the stream."""
        mlp = layer.mlp
        stream = stream + layer.self_attn.o_proj(seen)
        weight, bias = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]), None
        if mlp.gate_proj.bias is not None:
            bias = torch.cat([mlp.gate_proj.bias, mlp.up_proj.bias])
        both = nnf.linear(self._normal(stream, layer.post_attention_layernorm), weight, bias)
        return stream + mlp.down_proj(_Gated.apply(both))

    def _normal(self, stream: Tensor, norm: Any) -> Tensor:
        if stream.dtype in (torch.float32, torch.float64):
            return _Normal.apply(stream, norm.weight, self.eps)
        return nnf.rms_norm(
            stream, norm.weight.shape, norm.weight, self.eps
        )  # which works in float32 and rounds at the end

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


def _laid(qkv: Tensor, plan: PackingPlan, heads: int, last: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    return cast("tuple[Tensor, Tensor, Tensor | None]", _Laid.apply(qkv, plan, heads, last))


class _Laid(Function):
    """Packed queries, keys and values laid out for attention; their gradients are put together in one buffer on the way back."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, qkv: Tensor, plan: PackingPlan, heads: int, last: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Queries of the rows, keys and values they may see, and, unless `last`, all three of the shared tokens."""
        ctx.plan, ctx.heads, ctx.shape = plan, heads, qkv.shape
        ctx.set_materialize_grads(False)
        number, rows = plan.prefix.number, len(plan.group)
        queries = qkv[number:, :heads].index_select(0, plan.own.packed).unflatten(0, plan.own.real.shape)
        both = qkv[:, heads:].index_select(0, plan.visible).unflatten(0, (rows, -1))
        shared = None
        if not last:
            shared = qkv[:number].index_select(0, plan.prefix.packed).unflatten(0, plan.prefix.real.shape)
        return queries, both, shared

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, queries: Tensor, both: Tensor, shared: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        plan, heads = cast("PackingPlan", ctx.plan), ctx.heads
        number, width = plan.prefix.number, plan.prefix.width
        result = queries.new_empty(ctx.shape)
        result[number:, :heads] = queries.flatten(0, 1).index_select(0, plan.own.inside)
        result[number:, heads:] = both[:, width:].flatten(0, 1).index_select(0, plan.own.inside)
        if number:
            groups = len(plan.prefix.real)
            common = both.new_zeros(groups, width, *both.shape[2:]).index_add_(0, plan.group, both[:, :width])
            if shared is None:
                result[:number, :heads] = 0.0
            else:
                result[:number] = shared.flatten(0, 1).index_select(0, plan.prefix.inside)
            to_common = common.flatten(0, 1).index_select(0, plan.prefix.inside)
            result[:number, heads:] = to_common if shared is None else result[:number, heads:] + to_common
        return result, None, None, None


def _packed(seen: Float[Tensor, "rows heads width size"], padding: Padding) -> Float[Tensor, "tokens channels"]:
    return cast("Tensor", _Packed.apply(seen.transpose(1, 2).flatten(2).flatten(0, 1), padding))


class _Packed(Function):
    """Padded tokens without the padding; autograd would add the gradients up one by one where they can be put in place."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, padding: Padding) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.padding = padding
        return padded.index_select(0, padding.inside)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        padding = cast("Padding", ctx.padding)
        found = gradient.index_select(0, padding.packed)
        if padding.number < padding.real.numel():  # padding is some token's copy: its gradient is not that token's
            found.masked_fill_(~padding.real.view(-1, 1), 0.0)
        return found, None


class _Normal(Function):
    """unit · weight, unit = stream / √(mean of its squares + ε): fewer passes over the tokens than autograd's."""

    @staticmethod
    def forward(ctx: Any, stream: Tensor, weight: Tensor, eps: float) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        square = torch.linalg.vector_norm(stream, dim=-1, keepdim=True).square_()
        scale = square.div_(stream.shape[-1]).add_(eps).rsqrt_()
        unit = stream * scale
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        unit, scale, weight = ctx.saved_tensors
        each = gradient * unit
        along = torch.mv(each, weight).div_(-unit.shape[-1]).unsqueeze(-1)  # the length of the unit does not change
        return (gradient * weight).addcmul_(unit, along).mul_(scale), each.sum(0), None


class _Turned(Function):
    """Queries and keys rotated by their positions; the values below them stay."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, turn: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(turn)
        return _rotated(qkv, turn)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return _rotated(gradient, ctx.saved_tensors[0].conj()), None


def _rotated(qkv: Float[Tensor, "tokens heads size"], turn: Tensor) -> Tensor:
    """A copy in which the first heads, in pairs of channels, are turned."""
    result, number = torch.empty_like(qkv, memory_format=torch.contiguous_format), turn.shape[1]
    wide = qkv[:, :number].to(turn.real.dtype)
    if wide.dtype == qkv.dtype:
        torch.mul(_complex(wide), turn, out=_complex(result[:, :number]))
    else:
        result[:, :number] = torch.view_as_real(_complex(wide) * turn).flatten(-2)
    result[:, number:] = qkv[:, number:]
    return result


def _complex(channels: Float[Tensor, "*tokens size"]) -> Complex[Tensor, "*tokens pairs"]:
    return torch.view_as_complex(channels.unflatten(-1, (-1, 2)))


class _Gated(Function):
    """silu(gate) · up of both side by side; their gradients are made side by side too."""

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
