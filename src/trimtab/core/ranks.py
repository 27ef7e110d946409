"""Sums and extremes over process groups; without a group, the identity."""

from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup


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
    def row_share(self) -> float:
        """What one rank contributes to a sum over sequences: each sequence stands on every context rank."""
        return 1.0 if self.context is None else 1.0 / dist.get_world_size(self.context)

    def summed(self, local: Tensor) -> Tensor:
        """The sum over the whole batch; `local` is consumed."""
        return _reduced(local, dist.ReduceOp.SUM, self.whole)

    def greatest(self, local: Tensor) -> Tensor:
        """The maximum over the whole batch; `local` is consumed."""
        return _reduced(local, dist.ReduceOp.MAX, self.whole)

    def joined(self, partial: Tensor) -> Tensor:
        """Sums over a sequence's parts; `partial` is consumed."""
        return _reduced(partial, dist.ReduceOp.SUM, self.context)

    def joined_peak(self, partial: Tensor) -> Tensor:
        """Maxima over a sequence's parts; `partial` is consumed."""
        return _reduced(partial, dist.ReduceOp.MAX, self.context)


ALONE = Ranks()
"""One process that holds everything."""


def _reduced(value: Tensor, op: dist.ReduceOp.RedOpType, group: ProcessGroup | None) -> Tensor:
    if group is None:
        return value
    value = value.contiguous()
    dist.all_reduce(value, op=op, group=group)
    return value
