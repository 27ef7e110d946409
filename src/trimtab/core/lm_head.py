"""The language-model head as a differentiable step from hidden states to log-probs, one tile of logits at a time.

hidden ─┐ product ┌──────────┐ + bias, ÷ temperature ┌──────────────┐
        ├───────► │ one tile │ ────────────────────► │ running sums │ ──► log-probs, entropy
weight ─┘         └──────────┘                       └──────────────┘
          backward: the same tile again ──► gradient of the loss in its logits ──► one product each for hidden and weight

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

from trimtab.core.entries import HeadLogits, Support, TileEntries, entries_by_tile, head_gradient
from trimtab.core.head import HeadEntries
from trimtab.core.ratio import working_type
from trimtab.core.softmax import LOG_ZERO, LogitGradient, RunningSoftmax, logit_gradient, scaling

_TOKENS = 1024
"""Most tokens in a tile: enough that a product is bound by arithmetic and not by reading the weight."""
_NARROW_PRODUCTS = torch.version.hip is None and "dtype_out" in torch.ops.aten.mm.overloads()
"""Whether this torch multiplies narrow types into a float32 result; it does so on CUDA only."""


# One token, a vocabulary of three in tiles of two entries, logits log 1, log 2, log 5, the third chosen:
#                      tile 1: log 1, log 2             tile 2: log 5
#     peak             log 2                            log 5, so that all before shrinks by 2/5
#     Σe               1/2 + 1 = 1.5                    1.5 · 0.4 + 1 = 1.6                      e^(logit − peak)
#     Σe·x             −0.3466 + 0                      (−0.3466 + 1.5 · log 0.4) · 0.4 + 0 = −0.6884      x = logit − peak
#     log p            (log 5 − log 5) − log 1.6 = log 5/8
#     entropy          log 1.6 + 0.6884 / 1.6 = 0.9003
#     back: p          1/8, 2/8                         5/8       e^(logit − log 8) from the tile worked out again
#     grad of log p    −1/8, −2/8                       3/8       1[chosen] − p, at once multiplied by hidden and weight
class LmHead(Function):
    """Log-probs and entropy from hidden states; gradients for hidden, weight, bias and the temperature."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        temperature: Tensor | None,
        ids: Tensor | None,
        places: Tensor,
        counted: Tensor,
        with_entropy: bool,
        chunk: int,
        support: HeadEntries | None,
        restricted: Tensor | None,
        head: HeadEntries | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """`temperature` is one number per token, `places` its target's place in the vocabulary, `support` what restricted ones run over.

        `head`: entries whose log-probs are asked for too.
        """
        ctx.operand, ctx.chunk = operand_type(hidden, weight), chunk
        dtype = working_type(hidden, weight)
        scale = None if temperature is None else scaling(temperature, dtype)
        tiles = _Tiles(hidden.to(ctx.operand), weight, bias, scale, ids, chunk, dtype)
        if support is not None and restricted is not None:
            tiles.support = Support(restricted, tiles.sort(support, restricted))
        ctx.support, ctx.entries = tiles.support, None if head is None else tiles.sort(head, counted)
        picked = None if ctx.entries is None else HeadLogits(ctx.entries, dtype)
        running = RunningSoftmax(places, dtype, torch.empty_like(tiles.scratch) if with_entropy else None)
        for columns in tiles.columns():
            entries, offset = tiles.entries(columns)
            for rows in tiles.rows():
                logits = tiles.logits(rows, columns.start, entries, offset)
                if picked is not None:
                    picked.take(rows.start, columns.start, logits)
                running.take(rows, columns.start, logits, logits)
        entropy, found = running.entropy(counted) if with_entropy else None, running.head_log_probs(picked)
        ctx.save_for_backward(
            hidden, weight, bias, temperature, ids, places, counted, running.logsumexp(), entropy, found
        )
        ctx.set_materialize_grads(False)
        return running.log_probs(counted), entropy, found

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_log_probs: Tensor | None, grad_entropy: Tensor | None, grad_head: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Gradients in the types of the inputs."""
        hidden, weight, bias, temperature, ids, places, counted, logsumexp, entropy, found = ctx.saved_tensors
        of_hidden, of_weight, of_bias, of_temperature = ctx.needs_input_grad[:4]
        grads = logit_gradient(
            grad_log_probs,
            grad_entropy,
            places=places,
            counted=counted,
            temperature=temperature,
            logsumexp=logsumexp,
            entropy=entropy,
            head=head_gradient(ctx.entries, found, grad_head),
        )
        clean = torch.where(grads.active.unsqueeze(-1), hidden, 0.0).to(ctx.operand)
        tiles = _Tiles(clean, weight, bias, grads.scale, ids, ctx.chunk, logsumexp.dtype, ctx.support)
        factor = grads.factor.unsqueeze(-1)
        by_token = _ByToken(tiles) if of_hidden or of_temperature else None
        by_weight = _ByEntry(weight, (clean * factor).to(ctx.operand), tiles) if of_weight else None
        by_bias = _ByEntry(bias, factor, tiles) if of_bias else None
        _collect(tiles, grads, by_token, [each for each in (by_weight, by_bias) if each is not None])
        return (
            by_token.grad_hidden(grads).to(hidden.dtype) if by_token and of_hidden else None,
            by_weight and by_weight.gradient,
            by_bias and by_bias.gradient,
            by_token.grad_temperature(grads, clean).to(temperature.dtype) if by_token and of_temperature else None,
            *[None] * 8,
        )


def _collect(tiles: _Tiles, grads: LogitGradient, by_token: _ByToken | None, by_entry: list[_ByEntry]) -> None:
    """Work every tile out again and add its gradients up."""
    spare = None if grads.by_entropy is None else torch.empty_like(tiles.scratch)
    for columns in tiles.columns():
        entries, offset = tiles.entries(columns)
        runs = [each.run(columns) for each in by_entry]
        for rows in tiles.rows():
            logits = tiles.logits(rows, columns.start, entries, offset)
            grad = grads.grad(rows, columns.start, logits, logits, spare)
            if by_token is not None:
                by_token.add(rows, grad, entries, offset)
            for each, run in zip(by_entry, runs, strict=True):
                _add_product(run, grad.t(), each.right[rows])
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
    support: Support | None = None
    scratch: Float[Tensor, " tile"] = field(init=False)

    def __post_init__(self) -> None:
        self.scratch = self.hidden.new_empty(self.height * self.width, dtype=self.dtype)

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

    def sort(self, entries: HeadEntries, counted: Tensor) -> TileEntries:
        """Entries of some tokens, sorted by the tile they stand in."""
        return entries_by_tile(entries, counted, self.size, height=self.height, width=self.width)

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

    def logits(
        self, rows: slice, first: int, entries: Tensor, offset: Tensor | None
    ) -> Float[Tensor, "tokens entries"]:
        """The tile whose leading entry is `first`; the next overwrites it."""
        hidden = self.hidden[rows]
        tile = self.scratch[: len(hidden) * len(entries)].view(len(hidden), len(entries))
        if hidden.dtype == tile.dtype:
            torch.mm(hidden, entries.t(), out=tile)
        else:
            torch.mm(hidden, entries.t(), out_dtype=tile.dtype, out=tile)
        if offset is not None:
            tile.add_(offset)
        if self.scale is not None:
            tile.mul_(self.scale[rows].unsqueeze(-1))
        if self.support is not None:
            self.support.restrict(rows.start, first, tile)
        return tile


class _ByToken:
    """Slopes against the weight and the bias, summed over the vocabulary: what hidden and the temperature receive."""

    def __init__(self, tiles: _Tiles) -> None:
        self.hidden = torch.zeros_like(tiles.hidden, dtype=tiles.dtype)
        self.offset = tiles.scratch.new_zeros(len(tiles.hidden))

    def add(self, rows: slice, grad: Tensor, entries: Tensor, offset: Tensor | None) -> None:
        """Add a tile."""
        _add_product(self.hidden[rows], grad, entries)
        if offset is not None:
            self.offset[rows].addmv_(grad, offset.clamp(min=LOG_ZERO))

    def grad_hidden(self, grads: LogitGradient) -> Tensor:
        """The gradient of hidden."""
        return self.hidden * grads.factor.unsqueeze(-1)

    def grad_temperature(self, grads: LogitGradient, hidden: Tensor) -> Tensor:
        """The gradient of the temperature: logits go with its inverse."""
        assert grads.scale is not None
        return -grads.scale * grads.factor * ((hidden * self.hidden).sum(-1) + self.offset)


class _ByEntry:
    """Slopes against `right`, summed over tokens: the gradient of the weight or the bias, one run of the vocabulary at a time."""

    def __init__(self, of: Tensor, right: Float[Tensor, "tokens width"], tiles: _Tiles) -> None:
        self.gradient = torch.zeros_like(of)
        self.right, self.ids, self.dtype = right, tiles.ids, tiles.dtype
        self.in_place = tiles.ids is None and of.dtype == tiles.dtype

    def run(self, columns: slice) -> Float[Tensor, "entries width"]:
        """Where the gradients of a run of the vocabulary are summed, in the working type."""
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
