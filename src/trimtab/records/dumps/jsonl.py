"""JSON Lines of any size, a line at a time."""

# pyarrow carries no types.
from __future__ import annotations

from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from trimtab.config.safe_yaml import json_data, opened
from trimtab.errors import RecordError
from trimtab.records.dumps.room import check_unpacked, free_room

MOST_LINE = 1 << 28
"""Bytes of one line; a longer one is no record of a sequence but a file without lines."""
AS_OBJECTS = 32
"""Bytes of memory that a byte of JSON may take."""
_BLOCK = 1 << 20
_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2", b"\x04\x22\x4d\x18": "lz4"}


def json_lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[dict[str, Any] | RecordError]:
    """The objects of a file, compressed or not; in place of a line that is none, why it is none.

    `start` and `end` are bytes, for a file that grows: they have to lie between lines.
    """
    for number, (line, whole) in enumerate(_lines(path, start, end), 1):
        if not line.strip():
            continue
        try:
            record = json_data(line)
        except ValueError:
            yield RecordError(f"line {number} {'is no JSON' if whole else 'was cut off'}")
            continue
        if isinstance(record, dict):
            yield cast("dict[str, Any]", record)
        else:
            yield RecordError(f"line {number} is no JSON object")


def codec_of(head: bytes) -> str | None:
    """How a file is compressed, by its first bytes."""
    return next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), None)


def last_line_end(path: Path, start: int) -> int:
    """Where the last whole line ends, of those after `start`; `start` where there is none."""
    with opened(path) as file:
        end = file.seek(0, 2)
        while end > start:
            begin = max(start, end - _BLOCK)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return start


def _lines(path: Path, start: int, end: int | None) -> Iterator[tuple[bytes, bool]]:
    """Each line, and whether it has its end."""
    waiting: list[bytes] = []
    size = unpacked = 0
    most = min(MOST_LINE, free_room() // AS_OBJECTS)
    try:
        with opened(path) as file:
            for block in _blocks(file, start, end):
                unpacked += len(block)
                check_unpacked(path, file.tell(), unpacked)
                *ended, rest = block.split(b"\n")
                for line in ended:
                    yield b"".join([*waiting, line]), True
                    waiting, size = [], 0
                waiting.append(rest)
                size += len(rest)
                if size > most:
                    raise RecordError(f"{path} needs lines of at most {most >> 20} MB, got a longer one.")
    except (OSError, pa.ArrowException) as error:
        raise RecordError(f"{path} cannot be read to its end: {error}.") from error
    if size:
        yield b"".join(waiting), False


def _blocks(file: BufferedIOBase, start: int, end: int | None) -> Iterator[bytes]:
    codec = codec_of(file.read(4))
    file.seek(start)
    stream: Any = file if codec is None else pa.CompressedInputStream(pa.PythonFile(file), codec)
    left = (end if end is not None else float("inf")) - start
    while left > 0 and (block := stream.read(int(min(_BLOCK, left)))):
        left -= len(block)
        yield block
