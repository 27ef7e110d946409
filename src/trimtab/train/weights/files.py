"""Weights as one safetensors file, in shared memory where there is enough of it, replaced by a rename.

publish ──► weights.next ──os.replace──► weights.safetensors ◄──open, mmap── newest

Who has opened a version keeps it, whole, however many come after it; nobody waits for anybody. The folder holds a lock: what a
killed learner leaves is removed by the next start.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from safetensors import safe_open
from torch import Tensor

from trimtab.errors import RunError
from trimtab.records.lock import Lock
from trimtab.records.scratch import locked_folder
from trimtab.train.devices import to_host
from trimtab.train.weights.protocol import NamedTensors, Snapshot

SHARED_MEMORY = Path("/dev/shm")
SPARE = 2.5
"""Models that must fit into shared memory: one that is read, one that is written, and something for others."""
ALIGNMENT = 64
DTYPE_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls them."""


@dataclass(frozen=True)
class Place:
    """Where a tensor's bytes lie, counted from the end of the header."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int

    @property
    def end(self) -> int:
        """One past its last byte."""
        return self.start + prod(self.shape) * self.dtype.itemsize


class FileWeights:
    """The publisher's end: one file, always whole."""

    def __init__(self, folder: Path | None = None) -> None:
        """In `folder`, which stays; left out: in a folder of its own, in shared memory if the weights fit, which goes at the end."""
        self._folder, self._own, self._lock = folder, folder is None, cast("Lock | None", None)
        self._places: dict[str, Place] = {}
        self._version = -1

    @property
    def version(self) -> int:
        """The version published last; −1 before the first."""
        return self._version

    @property
    def path(self) -> Path:
        """The file."""
        if self._folder is None or self._version < 0:
            raise RunError("Weights need to be published before they are read, got none.")
        return self._folder / "weights.safetensors"

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Make these the newest weights."""
        if version <= self._version:
            raise RunError(f"Weights need a version above {self._version}, got {version}. Versions only rise.")
        if not self._places:
            weights = [
                (name, to_host([tensor])[0]) for name, tensor in weights
            ]  # all at once only here, and not on a GPU
            self._places = _places(weights)
        folder = self._home()
        temporary = folder / "weights.next"
        try:
            with temporary.open("wb") as file:
                self._write(file, weights, version)
            os.replace(temporary, folder / "weights.safetensors")
        except OSError as error:
            raise RunError(
                f"Publishing weights needs {self._size / 2**20:.0f} MB twice in {folder}, got {error.strerror}. "
                "Make room there; the run can be resumed."
            ) from error
        self._version = version

    def reader(self) -> FileReader:
        """The other end."""
        return FileReader(self.path)

    def close(self) -> None:
        """Remove the folder, if it is our own."""
        if self._own and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def _size(self) -> int:
        return max((place.end for place in self._places.values()), default=0)

    def _home(self) -> Path:
        if self._folder is None:
            self._folder, self._lock = locked_folder(_root(self._size))
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder

    def _write(self, file: BinaryIO, weights: NamedTensors, version: int) -> None:
        header = _header(self._places.values(), version)
        file.write(header)
        file.flush()
        left = dict(self._places)
        for name, tensor in weights:
            place = left.pop(name, None)
            if place is None or (place.shape, place.dtype) != (tuple(tensor.shape), tensor.dtype):
                raise RunError("Weights need the names, shapes and types they began with, got others.")
            if place.end > place.start:
                plain = to_host([tensor])[0].contiguous().reshape(-1).view(torch.uint8)
                _write_at(file.fileno(), memoryview(cast("Any", plain.numpy())), len(header) + place.start)
        if left:
            raise RunError(f"Weights need the names they began with, got none for {min(left)}.")


class FileReader:
    """A sampler's end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark: tuple[int, int] | None = None
        self._version = -1

    def __reduce__(self) -> tuple[object, ...]:
        return FileReader, (self.path,)

    @property
    def version(self) -> int:
        """The newest version there is to read."""
        try:
            if _mark(os.stat(self.path)) != self._mark:
                with _opened(self.path) as (file, mark):
                    self._mark, self._version = mark, int(file.metadata()["version"])
        except FileNotFoundError:
            return -1
        return self._version

    def newest(self) -> Snapshot:
        """The newest weights, all of one version. They are pages of the file: nothing is copied before somebody looks at it."""
        try:
            with _opened(self.path) as (file, _):
                return Snapshot({name: file.get_tensor(name) for name in file.keys()}, int(file.metadata()["version"]))  # noqa: SIM118
        except FileNotFoundError:
            raise RunError(
                f"Weights need to be published before they are read, got no file {self.path}. The learner may have ended."
            ) from None


@contextmanager
def _opened(path: Path) -> Generator[tuple[Any, tuple[int, int]]]:
    """The file by its descriptor: safetensors opens a path twice, and the next version may come in between."""
    with path.open("rb") as file, safe_open(f"/dev/fd/{file.fileno()}", framework="pt") as opened:
        yield opened, _mark(os.fstat(file.fileno()))


class LinkedFile:
    """The published file under a second name, which the next version does not replace while somebody reads it."""

    def __init__(self, published: Path, path: Path) -> None:
        """`path`: the second name, of one reader alone, on the same disk."""
        self._published, self.path, self._reader = published, path, FileReader(published)

    @property
    def version(self) -> int:
        """The newest version there is to read."""
        return self._reader.version

    def take(self) -> Snapshot:
        """The newest weights."""
        self.path.unlink(missing_ok=True)
        os.link(self._published, self.path)
        return FileReader(self.path).newest()

    def close(self) -> None:
        """Remove the second name."""
        self.path.unlink(missing_ok=True)


def _root(size: int) -> Path:
    """Where files cost no disk, if there is room; containers often have next to none."""
    shared = SHARED_MEMORY
    if shared.is_dir() and os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > SPARE * size:
        return shared
    return Path(tempfile.gettempdir())


def _places(weights: Sequence[tuple[str, Tensor]]) -> dict[str, Place]:
    """One tensor after the other without holes, as safetensors wants it; the widest types first, so that all are aligned."""
    places: dict[str, Place] = {}
    end = 0
    for name, tensor in sorted(weights, key=lambda pair: -pair[1].dtype.itemsize):
        places[name] = Place(name, tuple(tensor.shape), tensor.dtype, end)
        end = places[name].end
    return places


def _header(places: Any, version: int) -> bytes:
    entries: dict[str, Any] = {
        place.name: {
            "dtype": DTYPE_NAMES[place.dtype],
            "shape": list(place.shape),
            "data_offsets": [place.start, place.end],
        }
        for place in cast("Sequence[Place]", places)
    }
    text = json.dumps({"__metadata__": {"format": "pt", "version": str(version)}, **entries}).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _mark(status: os.stat_result) -> tuple[int, int]:
    """What tells one file of this name from the next."""
    return status.st_ino, status.st_mtime_ns


def _write_at(descriptor: int, content: memoryview, offset: int) -> None:
    while content:
        count = os.pwrite(descriptor, content, offset)
        content, offset = content[count:], offset + count
