"""Rows of JSONL, JSON, CSV and parquet files and of hub datasets, each with the place it came from."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trimtab.config.base import excerpt
from trimtab.errors import ConfigError, ConfigFileError


@dataclass(frozen=True)
class Row:
    """Fields by name, and where they stand: `file:line`."""

    place: str
    fields: Mapping[str, Any]


def check_path(path: str) -> None:
    """Refuse a name that neither a file nor, as far as it can be told from the name, a hub dataset has."""
    file = Path(path)
    if not os.path.isfile(file) and file.suffix.lower() in READERS:
        raise ConfigFileError(f"Task needs an existing file, got {excerpt(path)}. It is looked for in {Path.cwd()}.")
    if os.path.exists(file) and file.suffix.lower() not in READERS:
        raise ConfigFileError(f"Task needs a file ending in {', '.join(READERS)}, got {excerpt(path)}.")


def rows(path: str, split: str, subset: str | None) -> Iterator[Row]:
    """The rows of a file, or of a hub dataset (`owner/name` or `owner/name:split`) where no such file is."""
    check_path(path)
    file = Path(path)
    read = READERS.get(file.suffix.lower())
    if read is not None:
        try:
            yield from read(file)
        except (OSError, UnicodeError) as error:
            raise ConfigFileError(f"{path} needs to be readable, got {error}.") from None
    else:
        yield from _hub(path, split, subset)


def _jsonl(file: Path) -> Iterator[Row]:
    with file.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _row(f"{file}:{number}", _parsed(f"{file}:{number}", line))


def _json(file: Path) -> Iterator[Row]:
    values = _parsed(str(file), file.read_text(encoding="utf-8-sig"))
    if not isinstance(values, list):
        raise ConfigFileError(f"{file} needs a list of objects, got {excerpt(values)}. One object per line is .jsonl.")
    for number, value in enumerate(cast("list[object]", values), 1):
        yield _row(f"{file}:{number}", value)


def _csv(file: Path) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    with file.open(encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines, strict=True)
        try:
            for fields in reader:
                place = f"{file}:{reader.line_num}"
                if None in fields or None in fields.values():
                    raise ConfigFileError(
                        f"{place} needs as many cells as the header, got {excerpt(list(fields.values()))}."
                    )
                yield Row(place, fields)
        except csv.Error as error:
            raise ConfigFileError(f"{file}:{reader.line_num} needs valid CSV, got: {error}.") from None


def _parquet(file: Path) -> Iterator[Row]:
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError("Task needs the package pyarrow for a parquet file. `pip install pyarrow`.")
    import pyarrow
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(file) as table:
            number = 0
            for batch in table.iter_batches():
                for fields in batch.to_pylist():
                    number += 1
                    yield Row(f"{file}:{number}", fields)
    except pyarrow.ArrowException as error:
        raise ConfigFileError(f"{file} needs to be a parquet file, got: {error}.") from None


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}


def _hub(name: str, split: str, subset: str | None) -> Iterator[Row]:
    if importlib.util.find_spec("datasets") is None:
        raise ConfigError(
            f"Task needs the package datasets for the hub dataset {excerpt(name)}. `pip install datasets`, or name a file."
        )
    name, _, own = name.partition(":")
    load: Callable[..., Any] = importlib.import_module("datasets").load_dataset
    try:
        table = load(name, subset, split=own or split)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise ConfigError(f"Task needs a hub dataset that can be loaded, got {excerpt(name)}. {why[:300]}") from error
    for number, fields in enumerate(table, 1):
        yield Row(f"{name}:{own or split}:{number}", fields)


def _parsed(place: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigFileError(f"{place} needs valid JSON, got: {error}.") from None


def _row(place: str, value: object) -> Row:
    if not isinstance(value, dict):
        raise ConfigFileError(f"{place} needs an object of fields, got {excerpt(value)}.")
    return Row(place, cast("dict[str, Any]", value))
