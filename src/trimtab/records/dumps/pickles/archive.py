"""The zip that `torch.save` writes: a pickle, and beside it the bytes of every storage, uncompressed.

Storages are mapped, not read: what nobody looks at costs no memory.
"""

from __future__ import annotations

import io
import re
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError
from trimtab.records.dumps.pickles.tensors import StandIn, elements, width
from trimtab.records.dumps.pickles.unpickler import NotDataError, unpickle

_HEADER = 30
"""Bytes of a member's header before its name."""
LEGACY = 0x1950A86A20F9469CFC6C
"""What a file of `torch.save` before torch 1.6 begins with."""


def torch_content(source: Path | bytes, path: Path) -> Any:
    """The data that `torch.save` wrote, in a file or in bytes within one; `path` is what messages name."""
    try:
        held = io.BytesIO(source) if isinstance(source, bytes) else opened(source)
        with held, zipfile.ZipFile(held) as archive:
            data = np.frombuffer(source, np.uint8) if isinstance(source, bytes) else np.memmap(held, np.uint8, "r")
            members = {info.filename: info for info in archive.infolist()}
            pickles = [name for name in members if name.endswith("data.pkl") and name.count("/") <= 1]
            if len(pickles) != 1:
                raise RecordError(f"{path} needs one data.pkl, as torch.save writes it, got {len(pickles)}.")
            prefix = pickles[0].removesuffix("data.pkl")
            if (
                f"{prefix}byteorder" in members
                and _member(members[f"{prefix}byteorder"], data, path).tobytes() == b"big"
            ):
                raise RecordError(f"{path} needs numbers in little-endian order, got the other one.")
            content = _member(members[pickles[0]], data, path)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise (
            error if isinstance(error, RecordError) else RecordError(f"{path} is no whole file of torch.save: {error}.")
        ) from None

    @cache
    def storage(key: str, kind: str, count: int) -> NDArray[Any]:
        info = members.get(f"{prefix}data/{key}")
        if info is None or not re.fullmatch(r"\w{1,40}", key):
            raise NotDataError("it asks for a storage that the file does not have")
        if info.file_size != count * width(kind):
            raise NotDataError(f"it has a storage of {count} numbers in {info.file_size} bytes")
        return elements(_member(info, data, path), kind)

    def persistent(pid: Any) -> NDArray[Any]:
        match pid:
            case ("storage", StandIn() as kind, key, _, count):
                return storage(str(key), kind.name.removeprefix("torch."), int(count))
            case _:
                raise NotDataError("it asks for objects that are no storages")

    return unpickle(io.BytesIO(content.tobytes()), len(content), path, persistent)


def _member(info: zipfile.ZipInfo, data: NDArray[np.uint8], path: Path) -> NDArray[np.uint8]:
    """A member's bytes where they lie. torch compresses none; one that is compressed could be of any size."""
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise NotDataError(
            f"{path} needs members that are neither compressed nor encrypted, got {info.filename[:80]!r}."
        )
    header = data[info.header_offset : info.header_offset + _HEADER].tobytes()
    name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    start = info.header_offset + _HEADER + name + extra
    if header[:4] != b"PK\x03\x04" or start + info.file_size > len(data):
        raise RecordError(f"{path} needs to be a whole file of torch.save, got one that is damaged.")
    return data[start : start + info.file_size]
