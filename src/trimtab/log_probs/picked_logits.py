"""Single entries of the vocabulary, token by token, sorted by the tile of logits that they stand in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.head import HeadEntries

_SOME = 1 << 20
"""Entries whose wide indices are made at a time: fresh memory for all of them costs more than what is done with it."""


@dataclass(frozen=True, eq=False)
class TileEntries:
    """Entries sorted by tile. A tile begins at a multiple of `height` tokens and of `width` entries of the vocabulary."""

    height: int
    width: int
    rows: Int[Tensor, " entries"]
    columns: Int[Tensor, " entries"]
    order: Int[Tensor, " entries"]
    """Where each stood before."""
    counted: Bool[Tensor, " entries"]
    """Whether it stands in a tile at all; in the order of before."""
    starts: list[int]
    """Where the entries of each tile begin, runs of the vocabulary first."""
    tall: int
    """Tiles per run of the vocabulary."""

    def inside(self, first_row: int, first_column: int, tokens: int) -> slice:
        """The entries of the tile, or of the tiles one above the other, that begins there."""
        run = first_column // self.width * self.tall
        last = run - (-(first_row + tokens) // self.height)
        return slice(self.starts[run + first_row // self.height], self.starts[last])

    def places(self, inside: slice, first_row: int, breadth: int) -> Int[Tensor, " some"]:
        """Where they stand in that tile, laid out flat."""
        return (self.rows[inside] - first_row) * breadth + self.columns[inside]


@dataclass(frozen=True, eq=False)
class Support:
    """The ids that each token's softmax runs over; a token that is not `restricted` has the whole vocabulary."""

    restricted: Bool[Tensor, " tokens"]
    entries: TileEntries

    def restrict(self, first_row: int, first_column: int, tile: Float[Tensor, "tokens entries"]) -> None:
        """Set the logits outside the support to −inf, in place."""
        rows = self.restricted[first_row : first_row + len(tile)]
        inside = self.entries.inside(first_row, first_column, len(tile))
        places = self.entries.places(inside, first_row, tile.shape[-1])
        flat = tile.view(-1)
        values = flat.index_select(0, places)
        tile.masked_fill_(rows.unsqueeze(-1), -torch.inf)
        flat.index_copy_(0, places, values)


class HeadLogits:
    """The logits of a head's entries, picked out of the tiles as these go by; in the order of the tiles."""

    def __init__(self, entries: TileEntries, dtype: torch.dtype) -> None:
        self.entries = entries
        self.values = torch.full(entries.rows.shape, -torch.inf, dtype=dtype, device=entries.rows.device)

    def take(self, first_row: int, first_column: int, tile: Float[Tensor, "tokens entries"]) -> None:
        """Pick those of a tile."""
        inside = self.entries.inside(first_row, first_column, len(tile))
        if tile.is_contiguous() and tile.dtype == self.values.dtype:
            places = self.entries.places(inside, first_row, tile.shape[-1])
            torch.index_select(tile.view(-1), 0, places, out=self.values[inside])
        else:
            self.values[inside] = tile[self.entries.rows[inside] - first_row, self.entries.columns[inside]].to(
                self.values.dtype
            )

    def logits(self) -> Float[Tensor, " entries"]:
        """They themselves, in the order they were given in."""
        found = torch.empty_like(self.values)
        for order, values in zip(self.entries.order.split(_SOME), self.values.split(_SOME), strict=True):
            found.index_copy_(0, order.long(), values)
        return found

    def log_probs(self, peak: Float[Tensor, " tokens"], sum_exp: Float[Tensor, " tokens"]) -> Float[Tensor, " entries"]:
        """Their log-probs in the order they were given in; −inf for what stands in no tile."""
        rows = self.entries.rows
        found = (self.values - peak[rows]) - sum_exp.log()[rows]
        return torch.where(
            self.entries.counted, torch.empty_like(found).index_copy_(0, self.entries.order, found), -torch.inf
        )


@dataclass(frozen=True, eq=False)
class HeadGradient:
    """What the loss asks of each entry of a head."""

    entries: TileEntries
    values: Float[Tensor, " entries"]
    """The gradient of the loss in its log-prob, in the order of the tiles; 0 for what has no probability."""

    def per_token(self, tokens: int) -> Float[Tensor, " tokens"]:
        """Their sum over each token's entries."""
        return self.values.new_zeros(tokens).index_add_(0, self.entries.rows, self.values)

    def touched(self, tokens: int) -> Bool[Tensor, " tokens"]:
        """Tokens with an entry that is asked something of: these may add up to 0."""
        hits = torch.zeros(tokens, dtype=torch.int32, device=self.values.device)
        return hits.index_add_(0, self.entries.rows, (self.values != 0).int()) > 0

    def subtract(self, first_row: int, first_column: int, tile: Float[Tensor, "tokens entries"]) -> None:
        """Take them off a tile, in place."""
        inside = self.entries.inside(first_row, first_column, len(tile))
        places = self.entries.places(inside, first_row, tile.shape[-1])
        tile.view(-1).index_add_(0, places, -self.values[inside].to(tile.dtype))


def head_gradient(
    entries: TileEntries | None, log_probs: Float[Tensor, " entries"] | None, gradient: Float[Tensor, " entries"] | None
) -> HeadGradient | None:
    """What a gradient in the log-probs of a head asks; None: nothing."""
    if entries is None or log_probs is None or gradient is None:
        return None
    held = torch.where(log_probs > -torch.inf, gradient, 0.0)
    return HeadGradient(entries, held.index_select(0, entries.order))


def entries_by_tile(
    entries: HeadEntries, counted: Bool[Tensor, " tokens"], size: int, *, height: int, width: int
) -> TileEntries:
    """The entries of some tokens, sorted for tiles of `height` tokens by `width` of `size` entries.

    It costs one read on the host: where each tile's entries begin.
    """
    tall, broad = -(-len(counted) // height), -(-size // width)
    there = entries.present & counted.index_select(0, entries.token)
    last = tall * broad
    tile = entries.ids.div(width, rounding_mode="floor") * tall + entries.token.div(height, rounding_mode="floor")
    tile, order = torch.where(there, tile, last).sort()
    starts = torch.searchsorted(tile, torch.arange(last + 1, device=tile.device)).tolist()
    return TileEntries(
        height=height,
        width=width,
        rows=entries.token.index_select(0, order),
        columns=entries.ids.index_select(0, order) % width,
        order=order,
        counted=there,
        starts=starts,
        tall=tall,
    )
