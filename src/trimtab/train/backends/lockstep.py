"""One process, everything in turn: what was given is sampled to the end with the weights of that moment. Deterministic."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from trimtab.train.backends.protocol import Arrived
from trimtab.train.engines.table import Engine
from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import NamedTensors


class Lockstep:
    """An engine in this process. A group given at version v is sampled by version v, whatever it waits for afterwards."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Take over the learner's weights."""
        self.publish(weights, version)

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Take over the learner's weights."""
        self._engine.load(dict(weights), version)

    def room(self) -> int:
        """All that the staleness rule admits."""
        return sys.maxsize

    def give(self, jobs: Sequence[Job]) -> None:
        """To be sampled by the next `arrived`."""
        self._engine.submit(jobs)

    def arrived(self, timeout: float, stop: Callable[[], bool] = lambda: False) -> Arrived:
        """Everything given, done, unless `stop` comes first; time has no meaning here."""
        groups: list[Group] = []
        while self._engine.pending and not stop():
            groups.extend(self._engine.step())
        return Arrived(groups=tuple(groups))

    def close(self) -> None:
        """Forget what was given."""
        self._engine.abandon()
