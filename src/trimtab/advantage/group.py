"""Who belongs together: groups named by id, over every rank that holds some of their rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
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
        return self.ranks.total(sums.index_add_(0, self.index, value.double()))

    def spread(self, group: Float[Tensor, "groups *columns"]) -> Float[Tensor, "rows *columns"]:
        """One value per group, for each of its rows."""
        return group[self.index]


def one_group(rows: int, device: torch.device, ranks: Ranks) -> Groups:
    """The whole batch as a group."""
    return Groups(torch.zeros(rows, dtype=torch.int64, device=device), 1, ranks)


def groups_of(ids: Int[Tensor, " rows"], count: int | None, ranks: Ranks) -> Groups:
    """Groups from ids. With a `count` the ids are indices already; without, they are gathered and numbered (a host sync)."""
    if count is not None:
        return Groups(ids.long(), count, ranks)
    (everyone,), _ = ranks.gather(ids.long())
    known = torch.unique(everyone)
    return Groups(torch.searchsorted(known, ids.long()), len(known), ranks)
