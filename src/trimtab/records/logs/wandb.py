"""W&B's local file of a run, `run-*.wandb`, which wandb writes online and offline and no longer has a reader for.

7 bytes of header, then frames as LevelDB has them in its logs (blocks of 32 KiB; checksum, length, type), each record a protobuf
message. Of it are read: history (field 2), whose items are a key and a value as JSON, and settings (of the run 17, of updates 5).
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from trimtab.config.safe_yaml import opened
from trimtab.records.logs.logged_curves import LONGEST_LINE, Log, LoggedCurve

MAGIC = b":W&B"
BLOCK, FRAME = 32768, 7
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
ITEM = re.compile(
    rb'((?:[\n\x12][\x01-\x7f][ -~\x80-\xff]+)+)\x82\x01[\x01-\x7f]([-+.\dEe]+|"?NaN"?|"?-?Infinity"?)(?![\w.])'
)
"""A key (field 1), or a nested key in parts (2), and its value (16) where that is a number."""
PART = re.compile(rb"[\n\x12][\x01-\x7f]([ -~\x80-\xff]+)")
STEP = b"_step"


def wandb_log(path: Path) -> Log:
    """The history and settings of a run."""
    columns: dict[bytes, tuple[array[int], list[bytes]]] = {}
    settings: dict[str, Any] = {}
    notes: list[str] = []
    with opened(path) as file:
        for record in _records(file, notes):
            with suppress(IndexError, ValueError):  # a damaged record
                for number, value in _fields(record):
                    if number == 2:
                        _add_history(columns, value)
                    elif number == 17:
                        for inner, config in _fields(value):
                            settings |= _config(config) if inner == 4 else {}
                    elif number == 5:
                        settings |= _config(value)
    return Log(path, "W&B", _curves(columns), settings, tuple(notes))


def _records(file: BinaryIO, notes: list[str]) -> Iterator[bytes]:
    """The records, put together from their frames; a damaged end is said and left out."""
    begun: list[bytes] = []
    for kind, data in _frames(file):
        if kind == WHOLE:
            yield data
        elif kind in (FIRST, MIDDLE, LAST):
            begun = [data] if kind == FIRST else [*begun, data]
            if kind == LAST:
                yield b"".join(begun)
            if kind == LAST or sum(map(len, begun)) > LONGEST_LINE:
                begun = []
        else:
            notes.append("The file ends in the middle of a record, or is damaged there.")
            return


def _frames(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Type and data of each frame; (0, …) where the file is cut off or no frame stands."""
    at = len(file.read(FRAME))
    while block := file.read(BLOCK - at % BLOCK):
        place = 0
        while len(block) - place >= FRAME:
            length, kind = int.from_bytes(block[place + 4 : place + 6], "little"), block[place + 6]
            data = block[place + FRAME : place + FRAME + length]
            if kind == 0 and not any(block[place:]):
                break  # the rest of the block is empty
            if len(data) < length or kind > LAST:
                yield 0, b""
                return
            yield kind, data
            place += FRAME + length
        at += len(block)


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a protobuf message that hold bytes, by number."""
    place, end = 0, len(message)
    while place < end:
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == 2:
            length, place = _varint(message, place)
            yield tag >> 3, message[place : place + length]
            place += length
        elif kind == 0:
            _, place = _varint(message, place)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        else:
            return


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise ValueError("a number of more than 64 bits")


def _add_history(columns: dict[bytes, tuple[array[int], list[bytes]]], history: bytes) -> None:
    pairs = ITEM.findall(history)
    step = next((int(value) for key, value in pairs if key.endswith(STEP) and len(key) == len(STEP) + 2), None)
    if step is None or step.bit_length() > 62:
        return
    for key, value in pairs:
        column = columns.get(key)
        if column is None:
            column = columns[key] = (array("q"), [])
        column[0].append(step)
        column[1].append(value)


def _curves(columns: dict[bytes, tuple[array[int], list[bytes]]]) -> dict[str, LoggedCurve]:
    found: dict[str, LoggedCurve] = {}
    for key, (steps, texts) in columns.items():
        name = "/".join(part.decode(errors="replace") for part in PART.findall(key))
        if not name.startswith("_"):
            with suppress(ValueError):
                found[name] = LoggedCurve(steps, array("d", (float(text.strip(b'"')) for text in texts)))
    return found


def _config(message: bytes) -> dict[str, Any]:
    """Updated settings: keys, and values as JSON."""
    settings: dict[str, Any] = {}
    for number, item in _fields(message):
        if number == 1:
            parts: Iterable[tuple[int, bytes]] = list(_fields(item))
            name = ".".join(value.decode(errors="replace") for each, value in parts if each in (1, 2))
            text = next((value for each, value in parts if each == 16), b"null")
            with suppress(ValueError, RecursionError):
                if name and name != "_wandb":
                    settings[name] = json.loads(text)
    return settings
