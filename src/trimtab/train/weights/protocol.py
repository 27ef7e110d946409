"""The two ends of the weights' way: a publisher beside the learner, a reader in every sampler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

NamedTensors = Iterable[tuple[str, Tensor]]
"""Whole tensors by state-dict name, on any device; a tensor of two names comes once, under its first."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Weights that belong together."""

    weights: Mapping[str, Tensor]
    version: int


@runtime_checkable
class WeightsReader(Protocol):
    """A sampler's end. It can be pickled, and reads on its own: no reader can hold up the publisher or another reader."""

    @property
    def version(self) -> int:
        """The newest version there is to read; −1 before the first. Cheap: it is asked between two decode steps."""
        ...

    def newest(self) -> Snapshot:
        """The newest weights, all of one version; they stay as they are while somebody holds them."""
        ...


@runtime_checkable
class Publisher(Protocol):
    """The learner's end."""

    @property
    def version(self) -> int:
        """The version published last; −1 before the first."""
        ...

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Make these the newest weights. Versions only rise; names, shapes and types stay those of the first."""
        ...

    def reader(self) -> WeightsReader:
        """The other end, to be sent to a sampler. Not before the first version is published."""
        ...

    def close(self) -> None:
        """Take back what was published. Can be called at any time, and again."""
        ...
