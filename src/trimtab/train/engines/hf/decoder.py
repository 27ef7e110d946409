"""What runs the model under an engine: rows of cached keys and values, and the logits after one more token in each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as nnf
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from trimtab.errors import ConfigError
from trimtab.train.devices import to_device
from trimtab.train.engines.hf.quantize import STATES
from trimtab.train.messages import Ints

Positions = NDArray[np.int64]

PREFILL = 16384
"""Most tokens, padding included, in one forward pass over beginnings."""


@runtime_checkable
class Decoder(Protocol):
    """Rows 0, 1, … of a cache; the engine keeps the rows in use dense, so a step is over the first n.

    Called under `torch.inference_mode`.
    """

    def keep_states(self, states: Callable[[Tensor], Tensor]) -> None:
        """Keys and values are kept as `states` of them from now on."""
        ...

    def load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Copy weights, by state-dict name, into the model."""
        ...

    def prefill(self, beginnings: Sequence[Ints]) -> list[Any]:
        """Keys and values of each beginning, to be placed."""
        ...

    def place(self, prefix: Any, rows: Sequence[int]) -> None:
        """Make a prefix the content of rows."""
        ...

    def move(self, source: int, target: int) -> None:
        """Copy one row over another."""
        ...

    def clear(self, row: int) -> None:
        """Wipe a row that may hold NaN: masked or not, 0 × NaN would reach whoever uses it next."""
        ...

    def forward(self, tokens: Positions, positions: Positions) -> Float[Tensor, "rows vocab"]:
        """Append a token to each of the first rows, at its position, and give the logits that follow it."""
        ...


def batches(beginnings: Sequence[Ints]) -> list[list[int]]:
    """Indices of neighbours that together stay below `PREFILL` tokens when padded to the longest; empty ones left out."""
    result: list[list[int]] = []
    width = 0
    for index, beginning in enumerate(beginnings):
        if not len(beginning):
            continue
        width = max(width, len(beginning))
        if not result or width * (len(result[-1]) + 1) > PREFILL:
            result.append([])
            width = len(beginning)
        result[-1].append(index)
    return result


def same(one: Decoder, other: Decoder, vocabulary: int) -> bool:
    """Whether two decoders give the same logits, up to rounding, for two short rows of different length."""
    rows: list[Ints] = [np.arange(size, dtype=np.int32) % vocabulary for size in (5, 3)]
    positions = np.array([5, 3])
    for decoder in (one, other):
        for row, prefix in enumerate(decoder.prefill(rows)):
            decoder.place(prefix, [row])
    for _ in range(2):
        tokens = positions % vocabulary
        left, right = (decoder.forward(tokens, positions) for decoder in (one, other))
        share = 1e-3 if left.dtype == torch.float32 else 0.1
        left, right = left.float(), right.float()
        spread = float(right.std().nan_to_num(0.0, 0.0))  # logits that overflow have none
        if not torch.allclose(left, right, rtol=0.0, atol=share * spread, equal_nan=True):
            return False
        positions = positions + 1
    return True


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
