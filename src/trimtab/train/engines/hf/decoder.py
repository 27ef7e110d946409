"""What runs the model under an engine: rows of cached keys and values, and the logits after one more token in each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

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
