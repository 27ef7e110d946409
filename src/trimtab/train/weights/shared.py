"""The learner's weights in memory that samplers share: two slots, written in turn, read without a lock.

No process can hold up another by dying. The memory has no name: it is a file that was deleted as soon as it was opened,
handed to samplers when they are spawned, so it is gone with the last process that has it, however that one ended.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from trimtab.errors import RunError

ALIGNMENT = 64
LATEST, WRITES, MARKS, VERSIONS, CELLS = 0, 1, 2, 4, 8
"""Cells of the header: the newest version; how many were written; of each slot, which write it holds and its version."""
OPEN = -1
"""Mark of a slot that is being written."""

_order = threading.Lock()


def _fence() -> None:
    """Keep the processor from moving what stands before past what comes after; a lock's atomics do that."""
    with _order:
        pass


@dataclass(frozen=True)
class Place:
    """Where a tensor lies in a slot."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int

    @property
    def end(self) -> int:
        """One past its last byte."""
        return self.start + prod(self.shape) * self.dtype.itemsize

    def view(self, slot: Tensor) -> Tensor:
        """The tensor itself, in a slot of bytes."""
        return slot[self.start : self.end].view(self.dtype).view(self.shape)


class SharedWeights:
    """Weights by state-dict name; tied ones once, under their first name. One writer, any number of readers."""

    def __init__(self, memory: Any, places: tuple[Place, ...]) -> None:
        self._memory, self._places = memory, places
        self._cells = np.frombuffer(memory, np.int64, CELLS)
        size = _aligned(places[-1].end) if places else 0
        slots = torch.frombuffer(memory, dtype=torch.uint8)[ALIGNMENT:]
        self._slots = slots[:size], slots[size : 2 * size]

    def __reduce__(self) -> tuple[object, ...]:
        return SharedWeights, (self._memory, self._places)

    @classmethod
    def create(cls, model: nn.Module) -> SharedWeights:
        """Room for two versions of the model's weights; nothing is written yet."""
        places: list[Place] = []
        end = 0
        for name, tensor in _distinct(model):
            places.append(Place(name, tuple(tensor.shape), tensor.dtype, _aligned(end)))
            end = places[-1].end
        memory = get_context("spawn").RawArray(ctypes.c_byte, ALIGNMENT + 2 * _aligned(end))
        weights = cls(memory, tuple(places))
        weights._cells[:] = OPEN
        weights._cells[WRITES] = 0
        return weights

    @property
    def version(self) -> int:
        """The newest version there is to read; -1 before the first."""
        return int(self._cells[LATEST])

    def write(self, model: nn.Module, version: int) -> None:
        """Make the model's present weights the newest version."""
        if version <= self.version:
            raise RunError(f"Weights need a version above {self.version}, got {version}. Versions only rise.")
        given = [(name, tuple(tensor.shape), tensor.dtype) for name, tensor in _distinct(model)]
        if given != [(place.name, place.shape, place.dtype) for place in self._places]:
            raise RunError("Weights need the names, shapes and types they began with, got others.")
        write = int(self._cells[WRITES]) + 1
        slot = write % 2
        self._cells[MARKS + slot] = OPEN
        _fence()
        for place, (_, tensor) in zip(self._places, _distinct(model), strict=True):
            place.view(self._slots[slot]).copy_(tensor)
        self._cells[VERSIONS + slot] = version
        _fence()
        self._cells[MARKS + slot] = write
        _fence()
        self._cells[WRITES] = write
        _fence()
        self._cells[LATEST] = version

    def read(self, patience: float = 60.0) -> tuple[dict[str, Tensor], int]:
        """A copy of the newest weights, all of one version, and which.

        Tries again where the writer came round to the same slot meanwhile: that takes two versions during one copy.
        """
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            write = int(self._cells[WRITES])
            if write == 0:
                break
            slot = write % 2
            _fence()
            copy = self._slots[slot].clone()
            version = int(self._cells[VERSIONS + slot])
            _fence()
            if self._cells[MARKS + slot] == write:
                return {place.name: place.view(copy) for place in self._places}, version
        if self.version < 0:
            raise RunError("Weights need to be written before they are read, got none.")
        raise RunError(
            f"Weights need to stand still for one copy, got overwritten for {patience:g} s. Publish less often."
        )


def _distinct(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The state dict without second names of the same tensor."""
    seen: set[tuple[int, tuple[int, ...], tuple[int, ...]]] = set()
    for name, tensor in model.state_dict().items():
        key = tensor.data_ptr(), tuple(tensor.shape), tensor.stride()
        if tensor.numel() and key in seen:
            continue
        seen.add(key)
        yield name, tensor.detach()


def _aligned(size: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
