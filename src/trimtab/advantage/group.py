"""Who belongs together: groups named by id, over every rank that holds some of their rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from jaxtyping import Float, Int
from torch import Tensor

from trimtab.core.ranks import Ranks


@dataclass(frozen=True, eq=False)
class Groups:
    """Each row's group as an index below `count`; the same index on every rank."""

    index: Int[Tensor, " rows"]
    count: int
    ranks: Ranks

    def total(self, value: Float[Tensor, "rows *columns"]) -> Float[Tensor, "groups *columns"]:
        """The sum over each group's rows, on whichever ranks they sit, in float64."""
        sums = value.new_zeros((self.count, *value.shape[1:]), dtype=torch.float64)
        return self.ranks.summed(sums.index_add_(0, self.index, value.double()))

    def spread(self, group: Float[Tensor, "groups *columns"]) -> Float[Tensor, "rows *columns"]:
        """One value per group, for each of its rows."""
        return group[self.index]


def one_group(rows: int, device: torch.device, ranks: Ranks) -> Groups:
    """The whole batch as a group."""
    return Groups(torch.zeros(rows, dtype=torch.int64, device=device), 1, ranks)


def grouped(ids: Int[Tensor, " rows"], count: int | None, ranks: Ranks) -> Groups:
    """Groups from ids. With a `count` the ids are indices already; without, they are gathered and numbered (a host sync)."""
    if count is not None:
        return Groups(ids.long(), count, ranks)
    known = torch.unique(gathered(ids.long(), ranks)[0])
    return Groups(torch.searchsorted(known, ids.long()), len(known), ranks)


def gathered(local: Tensor, ranks: Ranks) -> tuple[Tensor, slice]:
    """The rows of every rank in rank order, and where this rank's own stand. Two collectives, whatever a rank holds."""
    group = ranks.whole
    if group is None:
        return local, slice(0, len(local))
    number = dist.get_world_size(group)
    lengths = local.new_zeros(number, dtype=torch.int64)
    lengths[dist.get_rank(group)] = len(local)
    dist.all_reduce(lengths, group=group)
    sizes: list[int] = lengths.tolist()  # the one place where the host must know: shapes differ by rank
    own = local.new_zeros((max(sizes), *local.shape[1:]))
    own[: len(local)] = local
    parts = [torch.empty_like(own) for _ in sizes]
    dist.all_gather(parts, own, group=group)
    start = sum(sizes[: dist.get_rank(group)])
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]), slice(start, start + len(local))
