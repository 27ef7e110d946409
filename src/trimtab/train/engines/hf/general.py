"""Any causal LM of transformers with a key-value cache, through its own forward.

Rows are aligned at their end, as `generate` aligns padded prompts: every row's next token goes into the same column, so
that causal and sliding-window masks mean for each row what they mean for it alone. Columns before a row's first token
are masked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as nnf
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from trimtab.errors import ConfigError
from trimtab.train.devices import to_device
from trimtab.train.engines.hf.decoder import Positions, batches
from trimtab.train.engines.hf.quantize import STATES
from trimtab.train.messages import Ints

ROOM = 64
"""Columns added at least when the cache is full."""

Prefix = list[tuple[Tensor, Tensor]]
"""Keys and values [heads, tokens, size] of each layer."""


class Span:
    """The columns in use, the same in every layer: up to `end`, `width` of them; room for `capacity`."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.end = self.width = 0
        self.capacity = ROOM


class Columns(DynamicLayer):
    """One layer's keys and values in buffers [rows, heads, capacity, size] that are written in place."""

    def __init__(self, span: Span) -> None:
        super().__init__()
        self.span = span
        self.buffers: list[Tensor] = []
        self.states: Callable[[Tensor], Tensor] = STATES["auto"]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the next column of the first rows; all their columns so far."""
        self.allocate((key_states, value_states))
        rows, span = len(key_states), self.span
        for buffer, states in zip(self.buffers, (key_states, value_states), strict=True):
            buffer[:rows, :, span.end : span.end + 1] = self.states(states)
        keys, values = (buffer[:rows, :, span.end - span.width : span.end + 1] for buffer in self.buffers)
        return keys, values

    def allocate(self, states: tuple[Tensor, Tensor]) -> None:
        """Buffers for states of this kind, where there are none yet."""
        if not self.buffers:
            self.is_initialized = True
            self.buffers = [
                each.new_zeros(self.span.rows, each.shape[-3], self.span.capacity, each.shape[-1]) for each in states
            ]

    def get_seq_length(self) -> int:
        """Columns that hold earlier tokens."""
        return self.span.width


class HfDecoder:
    """Decoder around a model's own forward. It owns the model."""

    def __init__(self, model: PreTrainedModel, rows: int) -> None:
        self.model = model
        self.parameters = dict(model.state_dict())
        self.span = Span(rows)
        layers = int(model.config.get_text_config().num_hidden_layers)
        self.layers = [Columns(self.span) for _ in range(layers)]
        self.cache = Cache(layers=cast("list[Any]", self.layers))
        accepted = inspect.signature(model.forward).parameters
        self.positioned = "position_ids" in accepted
        self.short: dict[str, int] = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    def keep_states(self, states: Callable[[Tensor], Tensor]) -> None:
        """Keys and values are kept as `states` of them from now on."""
        for layer in self.layers:
            layer.states = states

    def load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copy weights, by state-dict name, into the model."""
        for name, weight in weights:
            self.parameters[name].copy_(weight)

    def prefill(self, beginnings: Sequence[Ints]) -> list[Prefix]:
        """Keys and values of each beginning: one forward over several, padded on the left."""
        result: list[Prefix] = [[] for _ in beginnings]
        for batch in batches(beginnings):
            width = max(len(beginnings[index]) for index in batch)
            tokens = np.zeros((len(batch), width), np.int64)
            for row, index in enumerate(batch):
                tokens[row, width - len(beginnings[index]) :] = beginnings[index]
            lengths = np.array([len(beginnings[index]) for index in batch])
            present = np.arange(width) >= (width - lengths)[:, None]
            cache = DynamicCache()
            self._output(torch.from_numpy(tokens), present, np.maximum(present.cumsum(1) - 1, 0), cache)
            pairs = self._pairs(cache, width)
            for row, index in enumerate(batch):
                start = width - len(beginnings[index])
                result[index] = [(keys[row, :, start:], values[row, :, start:]) for keys, values in pairs]
        return result

    def place(self, prefix: Prefix, rows: Sequence[int]) -> None:
        """Make a prefix the content of rows: its last token stands in the last column in use."""
        if not prefix:
            return
        length = prefix[0][0].shape[1]
        if length > self.span.end:
            self._regrow(length)
        start, end = self.span.end - length, self.span.end
        for layer, pair in zip(self.layers, prefix, strict=True):
            layer.allocate(pair)
            for buffer, states in zip(layer.buffers, pair, strict=True):
                buffer[list(rows), :, start:end] = layer.states(states)

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        for buffer in self._buffers():
            buffer[target] = buffer[source]

    def clear(self, row: int) -> None:
        """Wipe a row that may hold NaN."""
        for buffer in self._buffers():
            buffer[row] = 0

    def forward(self, tokens: Positions, positions: Positions) -> Float[Tensor, "rows vocab"]:
        """Append a token to each of the first rows, at its position, and give the logits that follow it."""
        span = self.span
        span.width = int(positions.max())
        if span.end < span.width or span.end == span.capacity:
            self._regrow(span.width)
        present = np.arange(span.width + 1) >= (span.width - positions)[:, None]
        logits = self._output(torch.from_numpy(tokens).unsqueeze(1), present, positions[:, None], self.cache)
        span.end += 1
        return logits[:, -1]

    def _output(self, tokens: Tensor, present: Any, positions: Positions, cache: Cache) -> Tensor:
        device = self.model.device
        optional: dict[str, Any] = dict(self.short)
        if self.positioned:
            optional["position_ids"] = to_device(torch.from_numpy(positions), device)
        mask = None if present.all() else to_device(torch.from_numpy(present).long(), device)
        model = cast("Any", self.model)
        return model(
            to_device(tokens, device), attention_mask=mask, past_key_values=cache, use_cache=True, **optional
        ).logits

    def _pairs(self, cache: DynamicCache, width: int) -> Prefix:
        pairs = [(getattr(layer, "keys", None), getattr(layer, "values", None)) for layer in cache.layers]
        if len(pairs) != len(self.layers) or any(keys is None or keys.shape[-2] != width for keys, _ in pairs):
            raise ConfigError(
                f"The engine needs a model with a key-value cache in every layer, got {type(self.model).__name__}. "
                "Use an attention-only causal LM."
            )
        return cast("Prefix", pairs)

    def _buffers(self) -> Iterable[Tensor]:
        return (buffer for layer in self.layers for buffer in layer.buffers)

    def _regrow(self, width: int) -> None:
        """New buffers whose last column in use is the `width`-th, with room behind it."""
        span = self.span
        carried = min(span.end, width)
        capacity = width + max(ROOM, width // 2)
        for layer in self.layers:
            layer.buffers = [
                nnf.pad(buffer[:, :, span.end - carried : span.end], (0, 0, width - carried, capacity - width))
                for buffer in layer.buffers
            ]
        span.end, span.capacity = width, capacity
