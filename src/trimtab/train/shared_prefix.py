"""The Llama and Qwen2 family over groups of responses, with gradient: what a group's rows have in common is worked out once.

prompt less its last token, once per group ─► keys, values ──────────────┐
last prompt token + response less its last, per row ─► queries, keys, values ─► attention ─► hidden states, one per response token

A row's own tokens are those whose states predict its response, so every state that leaves the last layer is used, and the
shared tokens, which are there only to be seen, leave it as keys and values. Tokens are packed: padding exists inside
attention only. The weights are the model's own; nothing is kept between calls but the rotation of each position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import Function, once_differentiable
from torch.nn import functional as nnf
from transformers import PreTrainedModel

from trimtab.train.engines.rotary import fits, paired, turns
from trimtab.train.rows import Rows


@dataclass(frozen=True, eq=False)
class Plan:
    """Where the tokens of a call stand: packed, the shared ones first; and padded, for attention."""

    tokens: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]
    shared: int
    """How many tokens are shared ones."""
    prefix: Padding
    own: Padding
    group: Int[Tensor, " rows"]
    """Which prefix each row goes on from."""
    hidden: Float[Tensor, "rows 1 width columns"]
    """Added to the scores: −inf for what a row's token does not see, of the prefix and then of its own tokens."""

    @classmethod
    def of(cls, rows: Rows, dtype: torch.dtype) -> Plan:
        """The plan of a batch, its shared prompts found by group."""
        first, group = _distinct(rows)
        common, length = rows.prompts[first] - 1, rows.lengths
        prefix, own = Padding.of(common), Padding.of(length)
        steps = torch.arange(own.width, device=length.device)
        places = (rows.prompts.unsqueeze(1) - 1 + steps).clamp(max=rows.ids.shape[1] - 1)
        begun = torch.arange(prefix.width, device=length.device)
        seen = torch.cat(
            [
                (begun < common[group].unsqueeze(1)).unsqueeze(1).expand(-1, own.width, -1),
                (steps <= steps.unsqueeze(1)).expand(len(length), -1, -1),
            ],
            dim=-1,
        )
        return cls(
            tokens=torch.cat([rows.ids[first, : prefix.width][prefix.real], rows.ids.gather(1, places)[own.real]]),
            positions=torch.cat([begun.expand_as(prefix.real)[prefix.real], places[own.real]]),
            shared=len(prefix.inside),
            prefix=prefix,
            own=own,
            group=group,
            hidden=torch.zeros(seen.shape, dtype=dtype, device=length.device)
            .masked_fill_(~seen, -torch.inf)
            .unsqueeze(1),
        )


@dataclass(frozen=True, eq=False)
class Padding:
    """The way between packed tokens and padded rows."""

    real: Bool[Tensor, "rows width"]
    inside: Int[Tensor, " tokens"]
    """The padded place of each packed token."""
    packed: Int[Tensor, " places"]
    """The packed place of each padded one; padding holds another token's copy, which nobody looks at."""

    @classmethod
    def of(cls, lengths: Int[Tensor, " rows"]) -> Padding:
        """Rows of these lengths, padded on the right."""
        width = int(lengths.max())
        real = torch.arange(width, device=lengths.device) < lengths.unsqueeze(1)
        flat = real.flatten()
        return cls(real, flat.nonzero().squeeze(1), (flat.cumsum(0) - 1).clamp(min=0))

    @property
    def width(self) -> int:
        """Places of a row."""
        return self.real.shape[1]

    def padded(self, packed: Float[Tensor, "tokens *size"]) -> Float[Tensor, "rows width *size"]:
        """Packed tokens laid out in rows."""
        return _moved(packed, self.packed, self.inside).unflatten(0, self.real.shape)

    def unpadded(self, padded: Float[Tensor, "rows width *size"]) -> Float[Tensor, "tokens *size"]:
        """The tokens without the padding."""
        return _moved(padded.flatten(0, 1), self.inside, self.packed, self.real)


class SharedPrefix:
    """The trunk of such a model, as a function of rows."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.trunk = cast("Any", model.base_model)
        attention = self.trunk.layers[0].self_attn
        self.size = int(attention.head_dim)
        self.heads = attention.q_proj.out_features // self.size
        self.kv = attention.k_proj.out_features // self.size
        self.eps = float(self.trunk.norm.variance_epsilon)
        self.turns: Tensor | None = None

    def __call__(self, rows: Rows) -> Float[Tensor, "rows width size"]:
        """The state that predicts each response token; beyond a row's end, finite numbers without meaning or gradient."""
        weight = self.trunk.embed_tokens.weight
        plan = Plan.of(rows, weight.dtype)
        turn = self._turns(int(rows.sizes.max()), weight.device)[plan.positions]
        turn = turn.unsqueeze(1).repeat(1, self.heads + self.kv, 1)
        stream = nnf.embedding(plan.tokens, weight)
        *inner, last = self.trunk.layers
        for layer in inner:
            qkv = self._qkv(layer, stream, turn)
            seen = torch.cat([self._before(qkv[: plan.shared], plan), self._own(qkv, plan)])
            stream = self._rest(layer, stream, seen)
        seen = self._own(self._qkv(last, stream, turn), plan)
        stream = self._rest(last, stream[plan.shared :], seen)
        return plan.own.padded(self._normal(stream, self.trunk.norm))

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

    def _before(self, qkv: Tensor, plan: Plan) -> Float[Tensor, "shared size"]:
        """What the shared tokens see of one another."""
        if not plan.shared:
            return qkv.new_zeros(0, self.heads * self.size)
        queries, keys, values = self._split(plan.prefix.padded(qkv))
        if self.heads > self.kv:
            keys, values = (each.repeat_interleave(self.heads // self.kv, 1) for each in (keys, values))
        seen = nnf.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return plan.prefix.unpadded(seen.transpose(1, 2).flatten(2))

    def _own(self, qkv: Tensor, plan: Plan) -> Float[Tensor, "own size"]:
        """What the rows' own tokens see of their prefix and of one another."""
        whole = plan.own.padded(qkv[plan.shared :])
        queries, keys, values = self._split(whole)
        if plan.shared:
            common = plan.prefix.padded(qkv[: plan.shared, self.heads :]).index_select(0, plan.group)
            both = torch.cat([common, whole[:, :, self.heads :]], 1)
            keys, values = both.transpose(1, 2).split(self.kv, 1)
        hidden, share = plan.hidden, self.heads // self.kv
        if share > 1:  # the heads that share keys become rows of one head's queries
            queries = queries.unflatten(1, (self.kv, share)).flatten(2, 3)
            hidden = hidden.repeat(1, 1, share, 1)
        seen = nnf.scaled_dot_product_attention(queries, keys, values, attn_mask=hidden)
        seen = seen.unflatten(2, (share, plan.own.width)).flatten(1, 2)
        return plan.own.unpadded(seen.transpose(1, 2).flatten(2))

    def _split(self, qkv: Float[Tensor, "rows width heads size"]) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values = qkv.transpose(1, 2).split([self.heads, self.kv, self.kv], 1)
        return queries, keys, values

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
        return nnf.rms_norm(stream, norm.weight.shape, norm.weight, self.eps)

    def _turns(self, width: int, device: torch.device) -> Tensor:
        if self.turns is None or len(self.turns) < width or self.turns.device != device:
            rope = self.trunk.rotary_emb
            self.turns = turns(rope.inv_freq.to(device), float(rope.attention_scaling), -(-width // 64) * 64)
        return self.turns


def shared_prefix(model: PreTrainedModel) -> SharedPrefix | None:
    """The fast trunk of a model it knows and agrees with on a few tokens; None for any other."""
    config: Any = model.config
    if not fits(model) or config.attention_dropout or model.is_gradient_checkpointing:
        return None
    linears = [module for name, module in model.base_model.named_modules() if name.endswith("_proj")]
    if any(type(each) is not nn.Linear for each in linears):  # adapters, quantised weights
        return None
    found = SharedPrefix(model)
    return found if _agrees(found, model) else None


@torch.no_grad()
def _agrees(fast: SharedPrefix, model: PreTrainedModel) -> bool:
    """Whether the states of two prompts, three responses, are those of the model itself."""
    device = model.get_input_embeddings().weight.device
    ids = (torch.arange(3 * 9, device=device).view(3, 9) * 5) % int(model.config.vocab_size)
    ids[1, :4] = ids[0, :4]
    prompts, lengths = (torch.tensor(each, device=device) for each in ((4, 4, 1), (5, 2, 8)))
    rows = Rows.bare(ids, prompts, lengths, torch.tensor([0, 0, 1], device=device))
    training = model.training
    model.eval()
    whole = cast("Tensor", fast.trunk(input_ids=ids, use_cache=False).last_hidden_state).float()
    made = fast(rows).float()
    model.train(training)
    share = 1e-4 if model.dtype in (torch.float32, torch.float64) else 0.1
    pairs = zip(made, whole, prompts.tolist(), lengths.tolist(), strict=True)
    return all(
        torch.allclose(one[:length], other[prompt - 1 : prompt - 1 + length], rtol=0.0, atol=share * float(whole.std()))
        for one, other, prompt, length in pairs
    )


def _distinct(rows: Rows) -> tuple[Int[Tensor, " groups"], Int[Tensor, " rows"]]:
    """The first row of each distinct prompt, and which of them each row has."""
    order = torch.arange(len(rows), device=rows.group.device)
    names, group = torch.unique(rows.group, return_inverse=True)
    first = torch.full_like(names, len(rows)).scatter_reduce_(0, group, order, "amin")
    inside = torch.arange(rows.ids.shape[1], device=group.device) < rows.prompts.unsqueeze(1)
    like = first[group]
    same = (rows.prompts == rows.prompts[like]) & ((rows.ids == rows.ids[like]) | ~inside).all(1)
    return (first, group) if bool(same.all()) else (order, order)


def _moved(source: Tensor, there: Tensor, back: Tensor, kept: Tensor | None = None) -> Tensor:
    return cast("Tensor", _Moved.apply(source, there, back, kept))


class _Moved(Function):
    """Rows taken out by index; their gradient goes the way back, by index too, where autograd would add it up one by one."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, source: Tensor, there: Tensor, back: Tensor, kept: Tensor | None
    ) -> Tensor:
        """`back` says where each source row went; `kept`, if given, which source rows went anywhere."""
        ctx.save_for_backward(back, kept)
        return source.index_select(0, there)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        back, kept = ctx.saved_tensors
        found = gradient.index_select(0, back)
        if kept is not None:
            found = found.masked_fill_(~kept.flatten().view(-1, *[1] * (found.ndim - 1)), 0.0)
        return found, None, None, None


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
    pairs = qkv[:, :number].to(turn.real.dtype).unflatten(-1, (-1, 2))
    result[:, :number] = torch.view_as_real(torch.view_as_complex(pairs) * turn).flatten(-2)
    result[:, number:] = qkv[:, number:]
    return result


class _Gated(Function):
    """silu(gate) · up of both side by side; their gradients are made side by side too."""

    @staticmethod
    def forward(ctx: Any, both: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx.save_for_backward(both)
        gate, up = both.chunk(2, -1)
        return nnf.silu(gate) * up

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        gate, up = ctx.saved_tensors[0].chunk(2, -1)
        result = torch.empty_like(ctx.saved_tensors[0])
        to_gate, to_up = result.chunk(2, -1)
        torch.mul(gradient, nnf.silu(gate), out=to_up)
        torch.ops.aten.silu_backward.grad_input(gradient * up, gate, grad_input=to_gate)
        return result
