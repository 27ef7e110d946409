"""Two engines as one: rollouts in the precision they are asked for, exact jobs in the learner's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from trimtab.train.engines.protocol import Engine
from trimtab.train.messages import Group, Job


class ExactBeside:
    """An engine of lower precision and an exact one beside it, which does the jobs that ask for it."""

    def __init__(self, rollouts: Engine, exact: Engine) -> None:
        self._rollouts, self._exact = rollouts, exact

    @property
    def pending(self) -> int:
        """Groups submitted and not yet finished."""
        return self._rollouts.pending + self._exact.pending

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs, each with the engine it asks for."""
        for engine, wanted in ((self._rollouts, False), (self._exact, True)):
            if share := [job for job in jobs if job.exact is wanted]:
                engine.submit(share)

    def step(self) -> list[Group]:
        """Make some progress with both."""
        return [group for engine in (self._rollouts, self._exact) if engine.pending for group in engine.step()]

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Have both take over the weights."""
        for engine in (self._rollouts, self._exact):
            engine.load(weights, version)

    def abandon(self) -> None:
        """Forget everything submitted."""
        for engine in (self._rollouts, self._exact):
            engine.abandon()
