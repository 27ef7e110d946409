"""Tiles of logits: some tokens by some of the vocabulary, worked out from hidden states and the weight of the head."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trimtab.core.head import HeadEntries
from trimtab.core.ratio import working_type
from trimtab.log_probs.picked_logits import TileEntries, entries_by_tile
from trimtab.log_probs.sparse_logits import Pairs, pair_logits

_TOKENS = 1024
"""Most tokens in a tile: enough that a product is bound by arithmetic and not by reading the weight."""
_NARROW_PRODUCTS = torch.version.hip is None and "dtype_out" in torch.ops.aten.mm.overloads()
"""Whether this torch multiplies narrow types into a float32 result; it does so on CUDA only."""


@dataclass(eq=False)
class Tiles:
    """Tiles of logits, each in the memory of the one before.

    The tokens of `pairs` come last, and stand in tiles only where their pairs are many.
    """

    hidden: Float[Tensor, "tokens width"]
    weight: Float[Tensor, "entries width"]
    bias: Float[Tensor, " entries"] | None
    scale: Float[Tensor, " whole"] | None
    ids: Int[Tensor, " ids"] | None
    chunk: int
    dtype: torch.dtype
    pairs: Pairs | None
    whole: int = field(init=False)
    """Tokens whose softmax is over the whole vocabulary; they come first."""
    holds_pairs: bool = field(init=False)
    scratch: Float[Tensor, " tile"] = field(init=False)

    def __post_init__(self) -> None:
        self.whole = len(self.hidden) if self.pairs is None else self.pairs.first
        self.holds_pairs = self.pairs is not None and not self.pairs.few
        self.scratch = self.hidden.new_empty(self.height * self.width if self.tokens else 0, dtype=self.dtype)

    @property
    def size(self) -> int:
        """Entries of the vocabulary."""
        return len(self.weight if self.ids is None else self.ids)

    @property
    def tokens(self) -> int:
        """Tokens that stand in tiles."""
        return len(self.hidden) if self.holds_pairs else self.whole

    @property
    def height(self) -> int:
        """Tokens in a tile."""
        return max(1, min(len(self.hidden), _TOKENS, self.chunk))

    @property
    def width(self) -> int:
        """Vocabulary entries in a tile."""
        return min(self.size, max(1, self.chunk // self.height))

    def sort(self, entries: HeadEntries, counted: Tensor) -> TileEntries:
        """Entries of some tokens, sorted by the tile they stand in."""
        return entries_by_tile(entries, counted, self.size, height=self.height, width=self.width)

    def sort_pairs(self) -> TileEntries | None:
        """The pairs, sorted by the tile they stand in, or by the run of the vocabulary where no tile holds them."""
        if self.pairs is None:
            return None
        return self.pairs.by_tile(self.height if self.holds_pairs else max(1, self.pairs.tokens), self.width)

    def pair_logits(self) -> Float[Tensor, " pairs"] | None:
        """The logits of few pairs, one by one."""
        if self.pairs is None:
            return None
        return pair_logits(self.hidden, self.weight, self.bias, self.pairs, self.chunk, self.dtype)

    def columns(self) -> Iterator[slice]:
        """Runs of the vocabulary."""
        return (slice(first, min(first + self.width, self.size)) for first in range(0, self.size, self.width))

    def down(self, columns: slice) -> Iterator[tuple[slice, Tensor, Tensor | None]]:
        """Runs of tokens under a run of the vocabulary, with its weight and bias."""
        if not self.tokens:
            return
        entries, offset = self.entries(columns)
        for first in range(0, self.tokens, self.height):
            yield slice(first, min(first + self.height, self.tokens)), entries, offset

    def entries(self, columns: slice) -> tuple[Float[Tensor, "entries width"], Float[Tensor, " entries"] | None]:
        """The weight and the bias of a run of the vocabulary, in the types they are worked with."""
        weight = self.weight[columns] if self.ids is None else self.weight.index_select(0, self.ids[columns])
        if self.bias is None:
            return weight.to(self.hidden.dtype), None
        bias = self.bias[columns] if self.ids is None else self.bias.index_select(0, self.ids[columns])
        return weight.to(self.hidden.dtype), bias.to(self.dtype)

    def tile(self, rows: slice, entries: Tensor) -> Float[Tensor, "tokens entries"]:
        """Memory for one."""
        tokens = rows.stop - rows.start
        return self.scratch[: tokens * len(entries)].view(tokens, len(entries))

    def logits(self, rows: slice, entries: Tensor, offset: Tensor | None) -> Float[Tensor, "tokens entries"]:
        """The logits of some tokens at some entries; the next overwrite them."""
        hidden, tile = self.hidden[rows], self.tile(rows, entries)
        if hidden.dtype == tile.dtype:
            torch.mm(hidden, entries.t(), out=tile)
        else:
            torch.mm(hidden, entries.t(), out_dtype=tile.dtype, out=tile)
        if offset is not None:
            tile.add_(offset)
        if self.scale is not None:
            scale = self.scale[rows].unsqueeze(-1)
            tile[: len(scale)].mul_(scale)
        return tile

    def leading(self, rows: slice) -> slice:
        """Those of a run of tokens whose softmax is over the whole vocabulary: none, some or all of it."""
        return slice(rows.start, max(rows.start, min(rows.stop, self.whole)))


def operand_type(hidden: Tensor, weight: Tensor) -> torch.dtype:
    """The type in which products are taken: what the inputs or autocast say on CUDA, the working type elsewhere.

    A CPU that has no narrow product in hardware takes longer over one, and torch's rounds its result.
    """
    dtype = working_type(hidden, weight)
    if hidden.device.type != "cuda" or not _NARROW_PRODUCTS or dtype == torch.float64:
        return dtype
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return torch.promote_types(hidden.dtype, weight.dtype)
