"""The language-model head as a differentiable step from hidden states to log-probs, one tile of logits at a time.

hidden ─┐ product ┌──────────┐ + bias, ÷ temperature ┌──────────────┐
        ├───────► │ one tile │ ────────────────────► │ running sums │ ──► log-probs, entropy
weight ─┘         └──────────┘                       └──────────────┘
          backward: the same tile again ──► slope of the loss in its logits ──► one product each for hidden and weight

Tiles go through the vocabulary once and hold many tokens each, so that the weight and its gradient pass through memory
once, not once for every few tokens. Logits and sums are float32 (float64 if an input is) until a gradient is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from trimtab.core.ratio import working_type
from trimtab.core.softmax import FAR, Pull, Running, pull, scaling

_TOKENS = 1024
"""Most tokens in a tile: enough that a product is bound by arithmetic and not by reading the weight."""
_NARROW_PRODUCTS = torch.version.hip is None and "dtype_out" in torch.ops.aten.mm.overloads()
"""Whether this torch multiplies narrow types into a float32 result; it does so on CUDA only."""


class Head(Function):
    """Log-probs and entropy from hidden states; gradients for hidden, weight, bias and the temperature."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        warmth: Tensor | None,
        ids: Tensor | None,
        places: Tensor,
        counted: Tensor,
        entropy: bool,
        chunk: int,
    ) -> tuple[Tensor, Tensor | None]:
        """`warmth` is the temperature of each token, `places` its target's place in the vocabulary."""
        ctx.operand, ctx.chunk = operand_type(hidden, weight), chunk
        dtype = working_type(hidden, weight)
        scale = None if warmth is None else scaling(warmth, dtype)
        tiles = _Tiles(hidden.to(ctx.operand), weight, bias, scale, ids, chunk, dtype)
        running = Running(places, dtype, torch.empty_like(tiles.room) if entropy else None)
        for columns in tiles.columns():
            entries, offset = tiles.entries(columns)
            for rows in tiles.rows():
                logits = tiles.logits(rows, entries, offset)
                running.take(rows, columns.start, logits, logits)
        spread = running.entropy(counted) if entropy else None
        ctx.save_for_backward(hidden, weight, bias, warmth, ids, places, counted, running.normaliser(), spread)
        ctx.set_materialize_grads(False)
        return running.log_probs(counted), spread

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, log_probs: Tensor | None, entropy: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Gradients in the types of the inputs."""
        hidden, weight, bias, warmth, ids, places, counted, normaliser, spread = ctx.saved_tensors
        to_hidden, to_weight, to_bias, to_warmth = ctx.needs_input_grad[:4]
        ask = pull(
            log_probs, entropy, places=places, counted=counted, warmth=warmth, normaliser=normaliser, spread=spread
        )
        clean = torch.where(ask.active.unsqueeze(-1), hidden, 0.0).to(ctx.operand)
        tiles = _Tiles(clean, weight, bias, ask.scale, ids, ctx.chunk, normaliser.dtype)
        factor = ask.factor.unsqueeze(-1)
        by_token = _ByToken(tiles) if to_hidden or to_warmth else None
        by_weight = _ByEntry(weight, (clean * factor).to(ctx.operand), tiles) if to_weight else None
        by_bias = _ByEntry(bias, factor, tiles) if to_bias else None
        _collect(tiles, ask, by_token, [each for each in (by_weight, by_bias) if each is not None])
        return (
            by_token.to_hidden(ask).to(hidden.dtype) if by_token and to_hidden else None,
            by_weight and by_weight.gradient,
            by_bias and by_bias.gradient,
            by_token.to_warmth(ask, clean).to(warmth.dtype) if by_token and to_warmth else None,
            *[None] * 5,
        )


def _collect(tiles: _Tiles, ask: Pull, by_token: _ByToken | None, by_entry: list[_ByEntry]) -> None:
    """Work every tile out again and add its slopes up."""
    spare = None if ask.steep is None else torch.empty_like(tiles.room)
    for columns in tiles.columns():
        entries, offset = tiles.entries(columns)
        runs = [each.run(columns) for each in by_entry]
        for rows in tiles.rows():
            logits = tiles.logits(rows, entries, offset)
            slope = ask.slope(rows, columns.start, logits, logits, spare)
            if by_token is not None:
                by_token.add(rows, slope, entries, offset)
            for each, run in zip(by_entry, runs, strict=True):
                _add_product(run, slope.t(), each.right[rows])
        for each, run in zip(by_entry, runs, strict=True):
            each.keep(columns, run)


@dataclass(eq=False)
class _Tiles:
    """Tiles of logits, each in the memory of the one before."""

    hidden: Float[Tensor, "tokens width"]
    weight: Float[Tensor, "entries width"]
    bias: Float[Tensor, " entries"] | None
    scale: Float[Tensor, " tokens"] | None
    ids: Int[Tensor, " ids"] | None
    chunk: int
    dtype: torch.dtype
    room: Float[Tensor, " tile"] = field(init=False)

    def __post_init__(self) -> None:
        self.room = self.hidden.new_empty(self.height * self.width, dtype=self.dtype)

    @property
    def size(self) -> int:
        """Entries of the vocabulary."""
        return len(self.weight if self.ids is None else self.ids)

    @property
    def height(self) -> int:
        """Tokens in a tile."""
        return max(1, min(len(self.hidden), _TOKENS, self.chunk))

    @property
    def width(self) -> int:
        """Vocabulary entries in a tile."""
        return min(self.size, max(1, self.chunk // self.height))

    def columns(self) -> Iterator[slice]:
        """Runs of the vocabulary."""
        return (slice(first, min(first + self.width, self.size)) for first in range(0, self.size, self.width))

    def rows(self) -> Iterator[slice]:
        """Runs of tokens."""
        return (
            slice(first, min(first + self.height, len(self.hidden)))
            for first in range(0, len(self.hidden), self.height)
        )

    def entries(self, columns: slice) -> tuple[Float[Tensor, "entries width"], Float[Tensor, " entries"] | None]:
        """The weight and the bias of a run of the vocabulary, in the types they are worked with."""
        weight = self.weight[columns] if self.ids is None else self.weight.index_select(0, self.ids[columns])
        if self.bias is None:
            return weight.to(self.hidden.dtype), None
        bias = self.bias[columns] if self.ids is None else self.bias.index_select(0, self.ids[columns])
        return weight.to(self.hidden.dtype), bias.to(self.dtype)

    def logits(self, rows: slice, entries: Tensor, offset: Tensor | None) -> Float[Tensor, "tokens entries"]:
        """One tile; the next overwrites it."""
        hidden = self.hidden[rows]
        tile = self.room[: len(hidden) * len(entries)].view(len(hidden), len(entries))
        if hidden.dtype == tile.dtype:
            torch.mm(hidden, entries.t(), out=tile)
        else:
            torch.mm(hidden, entries.t(), out_dtype=tile.dtype, out=tile)
        if offset is not None:
            tile.add_(offset)
        if self.scale is not None:
            tile.mul_(self.scale[rows].unsqueeze(-1))
        return tile


class _ByToken:
    """Slopes against the weight and the bias, summed over the vocabulary: what hidden and the temperature receive."""

    def __init__(self, tiles: _Tiles) -> None:
        self.hidden = torch.zeros_like(tiles.hidden, dtype=tiles.dtype)
        self.offset = tiles.room.new_zeros(len(tiles.hidden))

    def add(self, rows: slice, slope: Tensor, entries: Tensor, offset: Tensor | None) -> None:
        """Add a tile."""
        _add_product(self.hidden[rows], slope, entries)
        if offset is not None:
            self.offset[rows].addmv_(slope, offset.clamp(min=FAR))

    def to_hidden(self, ask: Pull) -> Tensor:
        """The gradient of hidden."""
        return self.hidden * ask.factor.unsqueeze(-1)

    def to_warmth(self, ask: Pull, hidden: Tensor) -> Tensor:
        """The gradient of the temperature: slopes against the logits, which go with its inverse."""
        assert ask.scale is not None
        return -ask.scale * ask.factor * ((hidden * self.hidden).sum(-1) + self.offset)


class _ByEntry:
    """Slopes against `right`, summed over tokens: the gradient of the weight or the bias, one run of the vocabulary at a time."""

    def __init__(self, of: Tensor, right: Float[Tensor, "tokens width"], tiles: _Tiles) -> None:
        self.gradient = torch.zeros_like(of)
        self.right, self.ids, self.dtype = right, tiles.ids, tiles.dtype
        self.in_place = tiles.ids is None and of.dtype == tiles.dtype

    def run(self, columns: slice) -> Float[Tensor, "entries width"]:
        """Where the slopes of a run of the vocabulary are summed, in the working type."""
        if self.in_place:
            return self.gradient[columns].view(-1, self.right.shape[-1])
        return self.right.new_zeros(columns.stop - columns.start, self.right.shape[-1], dtype=self.dtype)

    def keep(self, columns: slice, run: Tensor) -> None:
        """Write a complete sum into the gradient."""
        if self.ids is not None:
            self.gradient.index_copy_(
                0, self.ids[columns], run.to(self.gradient.dtype).view(-1, *self.gradient.shape[1:])
            )
        elif not self.in_place:
            self.gradient[columns] = run.view(-1, *self.gradient.shape[1:])


def _add_product(to: Tensor, left: Tensor, right: Tensor) -> None:
    """Add left @ right to a sum of a type as wide or wider."""
    if right.dtype == to.dtype:
        to.addmm_(left, right)
    else:
        to.add_(torch.mm(left.to(right.dtype), right, out_dtype=to.dtype))


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
