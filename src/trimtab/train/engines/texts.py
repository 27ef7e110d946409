"""An engine that also decodes: samplers are many and the run that takes in their groups is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from trimtab.train.engines.protocol import Engine
from trimtab.train.messages import Group, Job
from trimtab.train.policy.policy import Policy


class WithTexts:
    """An engine whose groups come with the texts of their responses."""

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self._engine, self._policy = engine, policy

    @property
    def pending(self) -> int:
        """Groups submitted and not yet finished."""
        return self._engine.pending

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs."""
        self._engine.submit(jobs)

    def step(self) -> list[Group]:
        """Make some progress; those that finished, decoded."""
        return [replace(group, texts=self._policy.texts_of(group)) for group in self._engine.step()]

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over the weights."""
        self._engine.load(weights, version)

    def abandon(self) -> None:
        """Forget everything submitted."""
        self._engine.abandon()
