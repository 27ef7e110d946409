"""The language-model head as a differentiable step from hidden states to log-probs, one tile of logits at a time.

hidden ─┐ product ┌──────────┐ + bias, ÷ temperature ┌──────────────┐
        ├───────► │ one tile │ ────────────────────► │ running sums │ ──► log-probs, entropy
weight ─┘         └──────────┘                       └──────────────┘
          backward: the same tile again ──► gradient of the loss in its logits ──► one product each for hidden and weight

Tiles go through the vocabulary once and hold many tokens each, so that the weight and its gradient pass through memory
once, not once for every few tokens. Logits and sums are float32 (float64 if an input is) until a gradient is complete.

Tokens that need single logits only (`Pairs`) come last. They have no softmax here: where their pairs are few no tile holds them, and where
they are many the pairs are picked out of the tiles, which backward fills with their gradients and need not work out again.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from trimtab.core.head import HeadEntries
from trimtab.core.ratio import working_type
from trimtab.log_probs.picked_logits import HeadGradient, HeadLogits, head_gradient
from trimtab.log_probs.softmax import LOG_ZERO, LogitGradient, RunningSoftmax, logit_gradient, scaling
from trimtab.log_probs.sparse_logits import Pairs, PairSlopes
from trimtab.log_probs.tiles import Tiles, operand_type


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
        head: HeadEntries | None,
        pairs: Pairs | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """`temperature` is one number per token, `places` its target's place in the vocabulary, `head` entries that are asked for too.

        All these are about the leading tokens of `hidden`; `pairs` is about the others, whose logits are returned before any temperature.
        """
        ctx.operand, ctx.chunk, ctx.pairs = operand_type(hidden, weight), chunk, pairs
        dtype = working_type(hidden, weight)
        scale = None if temperature is None else scaling(temperature, dtype)
        tiles = Tiles(hidden.to(ctx.operand), weight, bias, scale, ids, chunk, dtype, pairs)
        ctx.entries = None if head is None else tiles.sort(head, counted)
        picked = None if ctx.entries is None else HeadLogits(ctx.entries, dtype)
        running = RunningSoftmax(places, dtype, torch.empty_like(tiles.scratch) if with_entropy else None)
        ctx.sorted = tiles.sort_pairs()
        single = HeadLogits(ctx.sorted, dtype) if ctx.sorted is not None and tiles.holds_pairs else None
        for columns in tiles.columns():
            for rows, entries, offset in tiles.down(columns):
                logits = tiles.logits(rows, entries, offset)
                if single is not None:
                    single.take(rows.start, columns.start, logits)
                rows = tiles.leading(rows)
                if rows.stop <= rows.start:  # all of the tile is pairs
                    continue
                logits = logits[: rows.stop - rows.start]
                if picked is not None:
                    picked.take(rows.start, columns.start, logits)
                running.take(rows, columns.start, logits, logits)
        entropy, found = running.entropy(counted) if with_entropy else None, running.head_log_probs(picked)
        ctx.save_for_backward(
            hidden, weight, bias, temperature, ids, places, counted, running.logsumexp(), entropy, found
        )
        ctx.set_materialize_grads(False)
        return running.log_probs(counted), entropy, found, tiles.pair_logits() if single is None else single.logits()

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any,
        grad_log_probs: Tensor | None,
        grad_entropy: Tensor | None,
        grad_head: Tensor | None,
        grad_pairs: Tensor | None,
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
        active, factor, asked = grads.active, grads.factor, None
        if ctx.sorted is not None:
            asked = HeadGradient(
                ctx.sorted,
                factor.new_zeros(len(ctx.sorted.rows))
                if grad_pairs is None
                else grad_pairs.index_select(0, ctx.sorted.order),
            )
            active = torch.cat([active, asked.touched(len(hidden))[len(active) :]])
            factor = torch.cat([factor, factor.new_full((len(hidden) - len(factor),), -1.0)])
        clean = torch.where(active.unsqueeze(-1), hidden, 0.0).to(ctx.operand)
        tiles = Tiles(clean, weight, bias, grads.scale, ids, ctx.chunk, logsumexp.dtype, ctx.pairs)
        factor = factor.unsqueeze(-1)
        by_token = _ByToken(tiles) if of_hidden or of_temperature else None
        by_weight = _ByEntry(weight, (clean * factor).to(ctx.operand), tiles) if of_weight else None
        by_bias = _ByEntry(bias, factor, tiles) if of_bias else None
        _collect(tiles, grads, asked, by_token, [each for each in (by_weight, by_bias) if each is not None])
        return (
            (by_token.hidden * factor).to(hidden.dtype) if by_token and of_hidden else None,
            by_weight and by_weight.gradient,
            by_bias and by_bias.gradient,
            by_token.grad_temperature(grads, clean).to(temperature.dtype) if by_token and of_temperature else None,
            *[None] * 7,
        )


def _collect(
    tiles: Tiles,
    grads: LogitGradient,
    pairs: HeadGradient | None,
    by_token: _ByToken | None,
    by_entry: list[_ByEntry],
) -> None:
    """Work every tile out again and add its gradients up."""
    spare = None if grads.by_entropy is None else torch.empty_like(tiles.scratch)
    held = pairs if tiles.holds_pairs else None
    few = None if pairs is None or held is not None else PairSlopes(pairs.entries, -pairs.values, tiles.chunk)
    for columns in tiles.columns():
        runs = [each.run(columns) for each in by_entry]
        for rows, entries, offset in tiles.down(columns):
            grad, leading = tiles.tile(rows, entries), tiles.leading(rows)
            if leading.stop > leading.start:
                logits = tiles.logits(leading, entries, offset)  # in the same memory
                grads.grad(leading, columns.start, logits, logits, spare)
            if held is not None:
                grad[leading.stop - rows.start :].zero_()
                held.subtract(rows.start, columns.start, grad)
            if by_token is not None:
                by_token.add(rows, grad, entries, offset)
            for each, run in zip(by_entry, runs, strict=True):
                _add_product(run, grad.t(), each.right[rows])
        if few is not None and by_token is not None:
            few.add_to_tokens(columns.start, by_token.hidden, tiles.weight)
        for each, run in zip(by_entry, runs, strict=True):
            if few is not None:
                few.add_to_entries(columns.start, run, each.right)
            each.keep(columns, run)


class _ByToken:
    """Slopes against the weight and the bias, summed over the vocabulary: what hidden and the temperature receive."""

    def __init__(self, tiles: Tiles) -> None:
        self.hidden = torch.zeros_like(tiles.hidden, dtype=tiles.dtype)
        self.offset = tiles.scratch.new_zeros(len(tiles.hidden))

    def add(self, rows: slice, grad: Tensor, entries: Tensor, offset: Tensor | None) -> None:
        """Add a tile."""
        _add_product(self.hidden[rows], grad, entries)
        if offset is not None:
            self.offset[rows].addmv_(grad, offset.clamp(min=LOG_ZERO))

    def grad_temperature(self, grads: LogitGradient, hidden: Tensor) -> Tensor:
        """The gradient of the temperature: logits go with its inverse."""
        assert grads.scale is not None
        tokens = len(grads.factor)
        return -grads.scale * grads.factor * ((hidden * self.hidden).sum(-1) + self.offset)[:tokens]


class _ByEntry:
    """Slopes against `right`, summed over tokens: the gradient of the weight or the bias, one run of the vocabulary at a time."""

    def __init__(self, of: Tensor, right: Float[Tensor, "tokens width"], tiles: Tiles) -> None:
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
