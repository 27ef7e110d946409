"""Weights in Ray's object store: put once per version, one copy on each node that reads them, shared by its samplers.

publish ──ray.put──► store of the learner's node ──on demand──► store of a sampler's node ──pages, not copied──► newest

Samplers are told of a version by its name alone; what they do not fetch is dropped when the next one comes.
"""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from typing import Any, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

from trimtab.errors import RunError
from trimtab.train.devices import to_host
from trimtab.train.weights.files import DTYPE_NAMES
from trimtab.train.weights.protocol import NamedTensors, Snapshot

_DTYPES = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor as bytes, which the store keeps beside its description and lends without a copy."""

    content: NDArray[Any]
    dtype: str
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> StoredTensor:
        """On the host; not copied where it is there already."""
        plain = to_host([tensor])[0].contiguous().reshape(-1).view(torch.uint8)
        return cls(plain.numpy(), DTYPE_NAMES[tensor.dtype], tuple(tensor.shape))

    def tensor(self) -> Tensor:
        """A view of the store's own pages: to be read, never written."""
        dtype = _DTYPES[self.dtype]
        if not len(self.content):
            return torch.empty(self.shape, dtype=dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it cannot be written is as it should be
            return torch.frombuffer(cast("Any", self.content), dtype=dtype).view(self.shape)


@dataclass(frozen=True, eq=False)
class StoredVersion:
    """Where the weights of a version lie."""

    version: int
    reference: Any
    """Of the object store. Inside another value it travels as a reference, and nobody fetches what it refers to."""


class ObjectWeights:
    """The learner's end. The newest version is kept in the store; older ones go when the last sampler lets go of them."""

    def __init__(self) -> None:
        self._newest: StoredVersion | None = None
        self._form: dict[str, tuple[str, tuple[int, ...]]] = {}

    @property
    def version(self) -> int:
        """The version published last; −1 before the first."""
        return -1 if self._newest is None else self._newest.version

    @property
    def newest(self) -> StoredVersion:
        """What samplers are told."""
        if self._newest is None:
            raise RunError("Weights need to be published before they are read, got none.")
        return self._newest

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Make these the newest weights. The store has copied them when this returns."""
        if version <= self.version:
            raise RunError(f"Weights need a version above {self.version}, got {version}. Versions only rise.")
        stored = {name: StoredTensor.of(tensor) for name, tensor in weights}
        form = {name: (each.dtype, each.shape) for name, each in stored.items()}
        self._form = self._form or form
        if form != self._form:
            raise RunError("Weights need the names, shapes and types they began with, got others.")
        ray: Any = importlib.import_module("ray")
        self._newest = StoredVersion(version, ray.put(stored))

    def reader(self) -> ObjectReader:
        """The other end, with the newest version."""
        return ObjectReader(self.newest)

    def close(self) -> None:
        """Let the store forget them."""
        self._newest = None


class ObjectReader:
    """A sampler's end. It is told of new versions by `take`, from whichever thread."""

    def __init__(self, newest: StoredVersion) -> None:
        self._newest = newest

    @property
    def version(self) -> int:
        """The newest version it was told of."""
        return self._newest.version

    def take(self, newest: StoredVersion) -> None:
        """There is a newer version."""
        self._newest = newest

    def newest(self) -> Snapshot:
        """The newest weights, fetched to this node if nobody here has yet."""
        told = self._newest
        ray: Any = importlib.import_module("ray")
        stored: dict[str, StoredTensor] = ray.get(told.reference)
        return Snapshot({name: each.tensor() for name, each in stored.items()}, told.version)
