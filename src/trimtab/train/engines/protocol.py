"""What every sampler offers: jobs in, groups out, new weights between two decode steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from trimtab.train.messages import Group, Job


@runtime_checkable
class Engine(Protocol):
    """Samples groups, one token of every running response per step."""

    version: int
    """Learner version of the weights in use."""

    @property
    def pending(self) -> int:
        """Groups submitted and not yet finished."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs; they begin in this order as slots become free."""
        ...

    def step(self) -> list[Group]:
        """Fill free slots, sample one token in every slot, return the groups that finished now."""
        ...

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over weights by state-dict name; they are copied."""
        ...

    def abandon(self) -> None:
        """Forget everything submitted."""
        ...
