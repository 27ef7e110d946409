"""Files of named arrays: npz and safetensors, without running anything that stands in them."""

from __future__ import annotations

import json
import math
import mmap
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError
from trimtab.records.dumps.pickles.tensors import from_bfloat16
from trimtab.records.dumps.reader import DumpFile
from trimtab.records.dumps.room import check_room, check_unpacked

_TYPES = {
    **{
        f"{sign}{size}": np.dtype(f"<{kind}{size // 8}")
        for sign, kind in (("I", "i"), ("U", "u"))
        for size in (8, 16, 32, 64)
    },
    **{f"F{size}": np.dtype(f"<f{size // 8}") for size in (16, 32, 64)},
    "BOOL": np.dtype(np.bool_),
    "BF16": np.dtype("<u2"),
}


def named_arrays(file: DumpFile) -> dict[str, NDArray[Any]]:
    """Every array of the file."""
    try:
        return _npz(file) if file.kind == "npz" else _safetensors(file)
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        EOFError,
        zipfile.BadZipFile,
    ) as error:
        raise RecordError(f"{file.path} needs to be a whole file of arrays, got a damaged one: {error}.") from error


def _npz(file: DumpFile) -> dict[str, NDArray[Any]]:
    with opened(file.path) as source:
        with zipfile.ZipFile(source) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            check_unpacked(file.path, sum(member.compress_size for member in members), size)
            check_room(file.path, size)
            for member in members:
                _check_header(archive, member)
        source.seek(0)
        with np.load(source, allow_pickle=False) as arrays:  # an array of objects is refused, as it would be unpickled
            return {name: arrays[name] for name in arrays.files}


def _check_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
    """Refuse an array that says it is larger than what is there, for which numpy would make room first."""
    with archive.open(member) as stream:
        read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
        version = np.lib.format.read_magic(stream)[0]
        if version not in read:
            raise ValueError(f"{member.filename} is of a form of array that is not known")
        shape, _, kind = read[version](stream)
    if math.prod(shape) * kind.itemsize > member.file_size:
        raise ValueError(f"{member.filename} is shorter than it says")


def _safetensors(file: DumpFile) -> dict[str, NDArray[Any]]:
    with opened(file.path) as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as data:
        check_room(file.path, len(data))
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        return {name: _tensor(name, entry, data, 8 + size) for name, entry in header.items()}


def _tensor(name: str, entry: dict[str, Any], data: Any, base: int) -> NDArray[Any]:
    if entry["dtype"] not in _TYPES:
        raise ValueError(f"{name} is of type {entry['dtype']}")
    kind, shape = _TYPES[entry["dtype"]], [int(side) for side in entry["shape"]]
    start, end = (base + int(offset) for offset in entry["data_offsets"])
    if min([0, *shape]) < 0 or start < base or end > len(data) or end - start != math.prod(shape) * kind.itemsize:
        raise ValueError(f"{name} does not fit into the file")
    values = np.frombuffer(data[start:end], kind).reshape(shape)
    return from_bfloat16(values.view(np.uint16)) if entry["dtype"] == "BF16" else values
