"""The Llama and Qwen2 family without transformers' overhead: one fused matmul per projection, a cache written in place.

Rows are aligned at their start: a token's column is its position. Query and key channels are stored in pairs, so that
rotating them by their position is one complex product; attention does not notice, as both are permuted alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional as nnf
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM

from trimtab.train.devices import to_device
from trimtab.train.engines.hf.decoder import Positions, batches
from trimtab.train.engines.hf.quantize import STATES
from trimtab.train.messages import Ints

FAMILY = (LlamaForCausalLM, Qwen2ForCausalLM)
STEADY_ROPE = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose frequencies do not depend on the length."""
ROOM = 64


@dataclass(frozen=True, eq=False)
class Layer:
    """One decoder layer's weights; keys and values are made beside the queries, gate beside up."""

    before: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    after: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


def fits(model: PreTrainedModel) -> bool:
    """Whether this file knows the architecture; that it computes the same is checked by running both."""
    config: Any = model.config
    return (
        type(model) in FAMILY
        and config.hidden_act == "silu"
        and config.rope_parameters["rope_type"] in STEADY_ROPE
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
    )


def paired(weight: Float[Tensor, "channels *inputs"], size: int) -> Float[Tensor, "channels *inputs"]:
    """A query or key projection with channels (1, 1 + half), (2, 2 + half), … of each head side by side."""
    return weight.unflatten(0, (-1, 2, size // 2)).transpose(1, 2).flatten(0, 2)


def rotations(frequencies: Float[Tensor, " pairs"], stretch: float, width: int) -> Complex[Tensor, "width pairs"]:
    """The factor that rotates a pair of channels to each position."""
    angles = torch.arange(width, device=frequencies.device).float().unsqueeze(1) * frequencies
    return torch.polar(torch.full_like(angles, stretch), angles)


class LlamaDecoder:
    """Decoder of such a model. It copies the weights and keeps no hold of the model."""

    def __init__(self, model: PreTrainedModel, rows: int) -> None:
        source = cast("Any", model)
        attention = source.model.layers[0].self_attn
        weight = source.model.embed_tokens.weight
        self.dtype, self.device = weight.dtype, weight.device
        self.size = int(attention.head_dim)
        self.heads, self.shared = attention.q_proj.out_features // self.size, int(attention.num_key_value_groups)
        self.kv = self.heads // self.shared
        self.eps = float(source.model.norm.variance_epsilon)
        self.is_folded = self.dtype == torch.float32  # in bf16 the product would be rounded once more
        self.floor = torch.tensor((weight.shape[1] * self.eps) ** 0.5, dtype=self.dtype, device=self.device)
        self.rows, self.capacity = rows, 0
        self.every = torch.arange(rows, device=self.device)
        self.nothing: Tensor = weight.new_zeros(1)
        self.states: Callable[[Tensor], Tensor] = STATES["auto"]
        self.targets: dict[str, tuple[Tensor, bool]] = {}
        self.embedding = self._own(source.model.embed_tokens.weight, "model.embed_tokens.weight")
        self.layers = [self._layer(each, f"model.layers.{i}.") for i, each in enumerate(source.model.layers)]
        self.norm = self._own(source.model.norm.weight, "model.norm.weight")
        tied = source.lm_head.weight is weight
        self.head = self.embedding if tied else self._own(source.lm_head.weight, "lm_head.weight")
        self.head_bias = self._own(source.lm_head.bias, "lm_head.bias") if source.lm_head.bias is not None else None
        rope = source.model.rotary_emb
        self.frequencies: Tensor = rope.inv_freq.clone()
        self.stretch = float(rope.attention_scaling)
        self.ignored = {"lm_head.weight"} if tied else set[str]()
        self.rotations: Tensor = self.nothing
        self.cache: Tensor = self.nothing
        self.by_layer: tuple[Tensor, ...] = ()
        self.flat: Tensor = self.nothing
        self._reach(ROOM)
        self.load(model.state_dict().items())

    def keep_states(self, states: Callable[[Tensor], Tensor]) -> None:
        """Keys and values are kept as `states` of them from now on."""
        self.states = states

    def load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copy weights, by state-dict name, into the fused ones."""
        left = set(self.targets)
        for name, weight in weights:
            if name in self.ignored:
                continue
            target, pairs = self.targets[name]
            target.copy_(paired(weight, self.size) if pairs else weight)
            left.discard(name)
        assert not left, f"a weight that is not given anew would be folded twice: {min(left)}"
        if self.is_folded:
            self._fold()

    def prefill(self, beginnings: Sequence[Ints]) -> list[Tensor]:
        """Keys and values [layers, 2, heads, tokens, size] of each beginning; padding behind it sees but is not seen."""
        result = [self.cache[:, :, 0, :, :0]] * len(beginnings)
        for batch in batches(beginnings):
            width = max(len(beginnings[index]) for index in batch)
            self._reach(width)
            tokens = np.zeros((len(batch), width), np.int64)
            for row, index in enumerate(batch):
                tokens[row, : len(beginnings[index])] = beginnings[index]
            made = self._beginning(to_device(torch.from_numpy(tokens), self.device))
            for row, index in enumerate(batch):
                result[index] = made[:, :, row, :, : len(beginnings[index])]
        return result

    def place(self, prefix: Tensor, rows: Sequence[int]) -> None:
        """Make a prefix the content of rows."""
        length = prefix.shape[3]
        self._reach(length)
        self.cache[:, :, list(rows), :, :length] = self.states(prefix).unsqueeze(2)

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        self.cache[:, :, target] = self.cache[:, :, source]

    def clear(self, row: int) -> None:
        """Wipe a row that may hold NaN."""
        self.cache[:, :, row] = 0

    def forward(self, tokens: Positions, positions: Positions) -> Float[Tensor, "rows vocab"]:
        """Append a token to each of the first rows, at its position, and give the logits that follow it."""
        rows, width = len(tokens), int(positions.max()) + 1
        self._reach(width)
        at = to_device(torch.from_numpy(positions), self.device)
        hidden = self.embedding.index_select(0, to_device(torch.from_numpy(tokens), self.device))
        turn = self.rotations.index_select(0, at).unsqueeze(1)
        even = int(positions.min()) + 1 == width
        hidden_columns = self._hidden_columns(at, width, even)
        columns = self.flat[:, : rows * self.kv, :width].unbind()
        news = self.cache[:, :, :rows, :, width - 1].unbind() if even else self.by_layer
        for layer, new, keys, values in zip(self.layers, news, columns[::2], columns[1::2], strict=True):
            qkv = self._qkv(layer, hidden, turn)
            made = self.states(qkv[:, self.heads :].view(rows, 2, self.kv, self.size))
            if even:
                new.copy_(made.transpose(0, 1))
            else:
                new[:, self.every[:rows], :, at] = made
            queries = qkv[:, : self.heads].reshape(rows * self.kv, self.shared, self.size)
            scores = torch.baddbmm(
                hidden_columns, queries, keys.transpose(1, 2), beta=0 if even else 1, alpha=self.size**-0.5
            )
            seen = torch.bmm(scores.softmax(-1), values).view(rows, -1)
            hidden = self._rest(layer, hidden, seen)
        last = self._normal(hidden, self.norm)
        return nnf.linear(last * self.norm if self.is_folded else last, self.head, self.head_bias)

    def _hidden_columns(self, at: Tensor, width: int, even: bool) -> Tensor:
        """-inf for the columns behind each row's position, 0 for the others; nothing needs it where all are even."""
        if even:
            return self.nothing
        behind = torch.arange(width, device=self.device) > at.unsqueeze(1)
        bias = self.embedding.new_zeros(len(at), width).masked_fill_(behind, -torch.inf)
        return bias.repeat_interleave(self.kv, 0).unsqueeze(1)

    def _beginning(self, tokens: Tensor) -> Tensor:
        """Keys and values [layers, 2, rows, heads, tokens, size] of padded beginnings."""
        rows, width = tokens.shape
        hidden = nnf.embedding(tokens.flatten(), self.embedding)
        turn = self.rotations[:width].repeat(rows, 1).unsqueeze(1)
        result = hidden.new_empty(len(self.layers), 2, rows, self.kv, width, self.size)
        for layer, made in zip(self.layers, result, strict=True):
            qkv = self._qkv(layer, hidden, turn).view(rows, width, -1, self.size).transpose(1, 2)
            made.copy_(qkv[:, self.heads :].unflatten(1, (2, self.kv)).transpose(0, 1))
            keys, values = made.repeat_interleave(self.shared, 2) if self.shared > 1 else made
            seen = nnf.scaled_dot_product_attention(qkv[:, : self.heads], keys, values, is_causal=True)
            hidden = self._rest(layer, hidden, seen.transpose(1, 2).reshape(rows * width, -1))
        return result

    def _normal(self, hidden: Tensor, weight: Tensor) -> Tensor:
        """The stream after a norm; where its weight is folded into the linears behind it, over the length of the stream alone."""
        if not self.is_folded:
            return torch.rms_norm(hidden, weight.shape, weight, self.eps)
        return hidden / torch.linalg.vector_norm(hidden, dim=-1, keepdim=True).hypot_(self.floor)

    def _qkv(self, layer: Layer, hidden: Tensor, turn: Complex[Tensor, "tokens 1 pairs"]) -> Tensor:
        """Queries, keys, both rotated, and values, one below the other: [tokens, heads + 2 kv, size]."""
        made = nnf.linear(self._normal(hidden, layer.before), layer.qkv, layer.qkv_bias).view(
            len(hidden), -1, self.size
        )
        rotated = made[:, : self.heads + self.kv]
        pairs = (len(hidden), self.heads + self.kv, -1, 2)
        if self.dtype == torch.float32:
            torch.view_as_complex(rotated.view(pairs)).mul_(turn)
        else:
            wide = torch.view_as_complex(rotated.float().view(pairs)).mul_(turn)
            rotated.copy_(torch.view_as_real(wide).flatten(-2))
        return made

    def _rest(self, layer: Layer, hidden: Tensor, seen: Tensor) -> Tensor:
        """What follows attention: its projection, then the gated MLP, each added to the stream."""
        hidden = _added(hidden, seen, layer.out, layer.out_bias)
        both = nnf.linear(self._normal(hidden, layer.after), layer.gate_up, layer.gate_up_bias)
        gate, up = both.chunk(2, -1)
        return _added(hidden, nnf.silu(gate).mul_(up), layer.down, layer.down_bias)

    # ---- weights and room ------------------------------------------------------------------------------------------

    def _fold(self) -> None:
        """Multiply the norms' weights into the linears that follow, and √width, since a stream over its length is short of it."""
        stretch = float(self.embedding.shape[1]) ** 0.5
        for layer in self.layers:
            layer.qkv.mul_(layer.before * stretch)
            layer.gate_up.mul_(layer.after * stretch)
        self.norm.mul_(stretch)

    def _own(self, like: Tensor, name: str) -> Tensor:
        """A tensor of our own for a weight."""
        self.targets[name] = (torch.empty_like(like), False)
        return self.targets[name][0]

    def _layer(self, source: Any, name: str) -> Layer:
        attention, mlp = source.self_attn, source.mlp
        qkv, qkv_bias = self._fused(attention, name + "self_attn.", ("q_proj", "k_proj", "v_proj"))
        out, out_bias = self._fused(attention, name + "self_attn.", ("o_proj",))
        gate_up, gate_up_bias = self._fused(mlp, name + "mlp.", ("gate_proj", "up_proj"))
        down, down_bias = self._fused(mlp, name + "mlp.", ("down_proj",))
        before = self._own(source.input_layernorm.weight, name + "input_layernorm.weight")
        after = self._own(source.post_attention_layernorm.weight, name + "post_attention_layernorm.weight")
        return Layer(before, qkv, qkv_bias, out, out_bias, after, gate_up, gate_up_bias, down, down_bias)

    def _fused(self, source: nn.Module, name: str, parts: tuple[str, ...]) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of linears put together; each part's own is a slice of them."""
        linears: list[Any] = [getattr(source, part) for part in parts]
        sizes = [linear.out_features for linear in linears]
        weight = linears[0].weight.new_empty(sum(sizes), linears[0].in_features)
        bias = weight.new_empty(sum(sizes)) if linears[0].bias is not None else None
        for kind, whole in (("weight", weight), ("bias", bias)):
            if whole is not None:
                for part, piece in zip(parts, whole.split(sizes), strict=True):
                    self.targets[f"{name}{part}.{kind}"] = (piece, part in ("q_proj", "k_proj"))
        return weight, bias

    def _reach(self, width: int) -> None:
        """Room for so many positions; what is cached stays."""
        if width <= self.capacity:
            return
        filled = self.capacity
        self.capacity = -(-max(width, filled * 3 // 2) // ROOM) * ROOM
        self.rotations = rotations(self.frequencies, self.stretch, self.capacity)
        shape = (len(self.layers), 2, self.rows, self.kv, self.capacity, self.size)
        wider = torch.zeros(shape, dtype=self.dtype, device=self.device)
        if filled:
            wider[..., :filled, :] = self.cache
        self.cache = wider
        self.by_layer = wider.unbind()
        self.flat = wider.flatten(2, 3).flatten(0, 1)


def _added(stream: Tensor, inner: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The stream plus a linear of `inner`."""
    result = torch.addmm(stream, inner, weight.t())
    return result if bias is None else result.add_(bias)
