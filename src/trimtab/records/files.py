"""Files that are whole or absent, lines that are whole or cut off, and text that any file can hold."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from trimtab.config.safe_yaml import json_data, opened
from trimtab.errors import RecordError, TrimtabError

TEMPORARY = ".writing-"
"""How the name of a file begins that is not finished; what a killed process leaves of it means nothing."""
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""Of opening a file of ours: where a link has its name, what the link leads to is not ours to change. Windows has no such flag."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_FILE = "it is no ordinary file"


def utf8_text(text: str) -> str:
    """The text with each lone surrogate as U+FFFD (a surrogate pair as its character): what UTF-8 can hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def strict_json(value: object) -> Any:
    """The value as strict JSON holds it: text made sound, NaN and infinities as the strings NaN, Infinity, -Infinity."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        return utf8_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        return {utf8_text(str(key)): strict_json(item) for key, item in pairs.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [strict_json(item) for item in cast("list[object]", value)]
    if value is None or isinstance(value, bool | int | float):
        return value
    return utf8_text(str(value))


def json_line(value: Mapping[str, Any]) -> bytes:
    """One line of JSON Lines, its end included."""
    return json.dumps(strict_json(value), ensure_ascii=False, allow_nan=False).encode() + b"\n"


def disk_error(path: Path, error: OSError, kind: type[TrimtabError] = RecordError) -> TrimtabError:
    """What to tell a user whose disk did not take a file."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return kind(f"{path} needs room on its disk: {reason}. Make room, then resume the run.")
    if error.errno == errno.ELOOP:
        return kind(f"{path} needs to be a file, got a link. What it leads to is left alone: put a file in its place.")
    if error.errno == errno.ENOENT and not path.parent.is_dir():
        return kind(f"{path} needs its folder, got it removed or moved meanwhile. Nothing more is written there.")
    return kind(f"{path} cannot be written: {reason}. Mend that, then resume the run.")


@contextmanager
def whole_file(path: Path) -> Generator[BinaryIO]:
    """A file to be written that appears under its name when all of it is on disk, and not at all otherwise."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        with open(_new_file(temporary), "wb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        _forget(temporary)
        raise disk_error(path, error) from error
    except BaseException:
        _forget(temporary)
        raise


def _new_file(path: Path) -> int:
    """A file that was not there before: neither what a killed process left under this name nor a link is written through."""
    with suppress(FileNotFoundError):
        path.unlink()
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK, 0o666)


def write_whole(path: Path, data: bytes) -> None:
    """Put the bytes there, or leave what was there."""
    with whole_file(path) as handle:
        handle.write(data)


def open_ordinary(path: Path, flags: int) -> int:
    """An ordinary file, opened to be written; an OSError for a pipe or a device, which could keep its writer waiting without end."""
    try:
        descriptor = os.open(path, flags | NO_LINK | getattr(os, "O_NONBLOCK", 0), 0o666)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that nobody reads
            raise OSError(errno.EINVAL, _NO_FILE) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, _NO_FILE)
    return descriptor


def make_folder(path: Path) -> Path:
    """The folder, made with whatever was missing above it, so that its name survives a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing or [path]:
        with suppress(OSError):  # a folder above may be one we can enter but not read: its names are not ours to keep
            sync_folder(folder.parent)
    return path


def sync_file(path: Path) -> None:
    """Have what a file holds survive a power cut; one that is not there holds nothing."""
    try:
        descriptor = open_ordinary(path, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder survive a power cut; not every file system can, and those that cannot say so."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(path: Path, line: bytes) -> None:
    """Add one whole line, or leave the file as it was."""
    try:
        descriptor = open_ordinary(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    except OSError as error:
        raise disk_error(path, error) from error
    try:
        before = os.fstat(descriptor).st_size
        try:
            while line:  # a full disk takes what it can before it refuses
                line = line[os.write(descriptor, line) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, before)
            raise disk_error(path, error) from error
    finally:
        os.close(descriptor)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a JSON Lines file; one that was cut off by a kill, at the end, is left out; no file has none."""
    try:
        data = _bytes_of(path)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
    *lines, _ = data.split(b"\n")
    return [_record(path, number, line) for number, line in enumerate(lines, 1)]


def _bytes_of(path: Path) -> bytes:
    with opened(path) as file:
        return file.read()


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json_data(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise RecordError(
            f"{path} needs one JSON object per line, got something else in line {number}. Delete that line."
        )
    return cast("dict[str, Any]", record)


def cut_torn_line(path: Path) -> int:
    """Cut off a torn last line, so that the next one does not join it; how many bytes went."""
    with suppress(FileNotFoundError):
        data = _bytes_of(path)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)
        return len(data) - whole
    return 0


def keep_lines(path: Path, wanted: Callable[[dict[str, Any]], bool]) -> int:
    """Rewrite the file with the wanted lines only, byte for byte; how many went."""
    records = lines_of(path)
    if all(wanted(record) for record in records):
        return 0
    lines = _bytes_of(path).split(b"\n")
    kept = [line + b"\n" for line, record in zip(lines, records, strict=False) if wanted(record)]
    write_whole(path, b"".join(kept))
    return len(records) - len(kept)


def _forget(temporary: Path) -> None:
    with suppress(OSError):
        temporary.unlink()
