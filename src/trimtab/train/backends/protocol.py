"""What the training loop needs of the thing that samples, wherever it samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import NamedTensors


@dataclass(frozen=True)
class Arrived:
    """News from the samplers."""

    groups: tuple[Group, ...] = ()
    """Finished, in the order they came in. A number can come twice, after its sampler was taken for dead."""
    lost: tuple[int, ...] = ()
    """Numbers of groups whose sampler died: to be given again."""
    notes: tuple[str, ...] = ()
    """What to tell the user, such as a sampler that was restarted and why."""

    def __bool__(self) -> bool:
        return bool(self.groups or self.lost or self.notes)


@runtime_checkable
class Backend(Protocol):
    """Samplers that answer jobs with the learner's weights. All calls come from one thread."""

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Start with these weights."""
        ...

    def publish(self, weights: NamedTensors, version: int) -> None:
        """These are the weights now: jobs given from here on begin with this version or a newer one."""
        ...

    def room(self) -> int:
        """How many more groups it wants to hold."""
        ...

    def give(self, jobs: Sequence[Job]) -> None:
        """Have these sampled. Never waits for a sampler."""
        ...

    def arrived(self, timeout: float, stop: Callable[[], bool] = lambda: False) -> Arrived:
        """What happened since the last call; waits at most `timeout` seconds for something, and may be empty.

        A back-end that samples here and now looks at `stop` between two decode steps, and leaves the rest once it holds.
        Raises RunError where sampling cannot go on.
        """
        ...

    def close(self) -> None:
        """End every sampler. Can be called at any time, and again."""
        ...
