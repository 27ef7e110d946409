"""Sums and extremes over process groups; without a group, the identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.errors import InputError


@dataclass(frozen=True)
class Ranks:
    """Who holds the batch: `batch` spans every rank with a part of it, `context` the ranks that share each sequence.

    Every method is one collective per group and the same number on every rank, whatever it holds.
    """

    batch: ProcessGroup | None = None
    context: ProcessGroup | None = None

    @property
    def whole(self) -> ProcessGroup | None:
        """The group that together holds the whole batch."""
        return self.batch if self.batch is not None else self.context

    @property
    def number(self) -> int:
        """How many ranks hold the batch."""
        return 1 if self.whole is None else dist.get_world_size(self.whole)

    @property
    def place(self) -> int:
        """Which of these ranks this one is, from 0."""
        return 0 if self.whole is None else dist.get_rank(self.whole)

    @property
    def row_share(self) -> float:
        """What one rank contributes to a sum over sequences: each sequence stands on every context rank."""
        return 1.0 if self.context is None else 1.0 / dist.get_world_size(self.context)

    def total(self, local: Tensor) -> Tensor:
        """The sum over the whole batch; `local` is consumed."""
        return _all_reduce(local, dist.ReduceOp.SUM, self.whole)

    def greatest(self, local: Tensor) -> Tensor:
        """The maximum over the whole batch; `local` is consumed."""
        return _all_reduce(local, dist.ReduceOp.MAX, self.whole)

    def sum_of_parts(self, partial: Tensor) -> Tensor:
        """Sums over a sequence's parts; `partial` is consumed. Gradients flow back to every part."""
        if self.context is not None and partial.requires_grad:
            return _Joined.apply(partial, self.context)  # pyright: ignore[reportReturnType]
        return _all_reduce(partial, dist.ReduceOp.SUM, self.context)

    def peak_of_parts(self, partial: Tensor) -> Tensor:
        """Maxima over a sequence's parts; `partial` is consumed."""
        return _all_reduce(partial, dist.ReduceOp.MAX, self.context)

    def gather(self, *local: Tensor) -> tuple[tuple[Tensor, ...], slice]:
        """Tensors of one value per row with the rows of every rank, in rank order, and where this rank's own stand.

        Ranks hold different numbers of rows, which the host reads once; one collective more for each tensor.
        """
        rows = len(local[0])
        if self.whole is None:
            return local, slice(0, rows)
        lengths = local[0].new_zeros(self.number, dtype=torch.int64)
        lengths[self.place] = rows
        sizes: list[int] = self.total(lengths).tolist()  # the one place where the host must know: shapes differ by rank
        start = sum(sizes[: self.place])
        return tuple(_all_gather(each, sizes, self.whole) for each in local), slice(start, start + rows)


ALONE = Ranks()
"""One process that holds everything."""


class _Joined(torch.autograd.Function):
    """A sum over a group, whose gradient is the sum over the group of the gradients: the loss has a part on every rank."""

    @staticmethod
    def forward(ctx: Any, partial: Tensor, group: ProcessGroup) -> Tensor:
        ctx.group = group
        return _all_reduce(partial.clone(), dist.ReduceOp.SUM, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return _all_reduce(gradients[0].clone(), dist.ReduceOp.SUM, ctx.group), None


def _all_reduce(value: Tensor, op: dist.ReduceOp.RedOpType, group: ProcessGroup | None) -> Tensor:
    if group is None:
        return value
    value = value.contiguous()
    dist.all_reduce(value, op=op, group=group)
    return value


def _all_gather(local: Tensor, sizes: list[int], group: ProcessGroup) -> Tensor:
    padded = local.new_zeros((max(sizes), *local.shape[1:]))
    padded[: len(local)] = local
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def groups(process_group: ProcessGroup | None, context_group: ProcessGroup | None) -> Ranks:
    """The ranks that hold the batch, and those among them that share each sequence."""
    if process_group is not None and context_group is not None and not torch.compiler.is_compiling():
        # Known on the host since the groups were made: nothing is sent and no device is waited for.
        held, shared = (dist.get_process_group_ranks(each) for each in (process_group, context_group))
        if not set(held) >= set(shared):
            raise InputError(
                f"process_group needs every rank of context_group, got ranks {held} without "
                f"{sorted(set(shared) - set(held))}. Statistics run over the whole batch: pass the group of all ranks that "
                "hold a part of it, data parallel and context parallel together."
            )
    return Ranks(batch=process_group, context=context_group)
