"""What the training loop needs of the one that trains, on one device or on many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from trimtab.train.messages import Answer, Stepped
from trimtab.train.weights.protocol import NamedTensors


@runtime_checkable
class Learner(Protocol):
    """Owns the model, its optimiser, and what is saved of both."""

    skipped: Counter[str]
    """Steps without an update, by what came of them."""

    @property
    def version(self) -> int:
        """Steps made: the version of the weights."""
        ...

    @version.setter
    def version(self, steps: int) -> None: ...

    def step(self, answers: Sequence[Answer]) -> Stepped:
        """Train on a batch; afterwards the weights are one version newer, also where nothing could be learned."""
        ...

    def weights(self) -> NamedTensors:
        """The present weights, to be published: whole tensors by state-dict name, a tensor of two names once."""
        ...

    def save(self, folder: Path) -> None:
        """Write model and optimiser into a folder that is there; `version` is kept by whoever keeps the folder."""
        ...

    def load(self, folder: Path) -> None:
        """Take both back, in place and bit for bit."""
        ...
