"""What every sampler offers: jobs in, groups out, new weights between two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from torch import Tensor

from trimtab.train.messages import Group, Job


@runtime_checkable
class Engine(Protocol):
    """Samples groups, step by step. Every token carries the version of the weights that sampled it."""

    @property
    def pending(self) -> int:
        """Groups submitted and not yet finished."""
        ...

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs; they begin in this order as there is room for them, each with the sampling it asks for."""
        ...

    def step(self) -> list[Group]:
        """Make some progress with what was submitted; the groups that finished by it."""
        ...

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over weights by state-dict name; they are copied. A weight of two names comes under the first alone."""
        ...

    def abandon(self) -> None:
        """Forget everything submitted."""
        ...
