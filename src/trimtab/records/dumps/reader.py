"""A file that holds a dump, and the reader of one sort of file: a row of `READERS` in `loading`."""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError
from trimtab.records.dumps.jsonl import codec_of, json_lines
from trimtab.records.dumps.pickles import pickle_content, torch_content
from trimtab.records.dumps.pickles.archive import LEGACY
from trimtab.records.dumps.row import DumpRow

_LINES_TRIED = 20


class DumpFile:
    """A path, and what its first bytes say: its kind and enough of its content to tell who wrote it; read when asked for, once."""

    def __init__(self, path: Path, start: int = 0, end: int | None = None) -> None:
        """`start` and `end` are bytes between lines, for a file of JSON Lines of which a part is wanted."""
        self.path, self.start, self.end = path, start, end

    @cached_property
    def kind(self) -> str:
        """run, jsonl, parquet, npz, torch, pickle, safetensors, or other."""
        if self.path.is_dir():
            return "run" if (self.path / "run.json").is_file() else "folder"
        head = self._head
        if head.startswith(b"PAR1"):
            return "parquet"
        if head.startswith(b"PK\x03\x04"):
            return self._archive
        if head.startswith(b"\x80") and head[1:2] in b"\x02\x03\x04\x05":
            return "pickle"
        if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < self.path.stat().st_size:
            return "safetensors"
        return "jsonl" if head.lstrip().startswith(b"{") or codec_of(head) else "other"

    @property
    def compressed(self) -> bool:
        """Whether it has to be decompressed, so that no byte of it is the start of a line."""
        return codec_of(self._head) is not None

    @cached_property
    def first(self) -> dict[str, Any]:
        """The first record of a file of JSON Lines; of others an empty one."""
        if self.kind != "jsonl":
            return {}
        for _, record in zip(range(_LINES_TRIED), json_lines(self.path), strict=False):
            if isinstance(record, dict):
                return record
        return {}

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The schema of a parquet file; of others None."""
        if self.kind != "parquet":
            return None
        try:
            with opened(self.path) as file:
                return pq.read_schema(file)
        except (pa.ArrowException, OSError) as error:
            raise RecordError(f"{self.path} needs to be a whole parquet file, got a damaged one: {error}.") from error

    @cached_property
    def content(self) -> Any:
        """The data of a `.pt` or `.pkl` file, see `pickles`; of others None."""
        if self.kind == "torch":
            return torch_content(self.path, self.path)
        if self.kind != "pickle":
            return None
        content = pickle_content(self.path)
        if content == LEGACY if isinstance(content, int) else False:
            raise RecordError(
                f"{self.path} needs to be written by torch 1.6 or later, got the older form of torch.save. "
                "Load it where it was made and save it again."
            )
        return content

    def release(self) -> None:
        """Forget the data; it is read again when it is asked for."""
        self.__dict__.pop("content", None)

    @property
    def samples(self) -> list[dict[str, Any]]:
        """The list `samples` of a `.pt` file that has one."""
        found = self.content.get("samples") if isinstance(self.content, dict) else None
        return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns, where it has any."""
        return tuple(self.first) if self.schema is None else tuple(self.schema.names)

    @property
    def number(self) -> int | None:
        """The last number in its name: a step, where the writer puts one there."""
        found = re.findall(r"\d+", self.path.name.partition(".")[0])
        return int(found[-1]) if found else None

    @cached_property
    def _head(self) -> bytes:
        try:
            with opened(self.path) as file:
                return file.read(64)
        except OSError as error:
            raise RecordError(f"{self.path} cannot be read: {error.strerror}. Check the path.") from None

    @cached_property
    def _archive(self) -> str:
        try:
            with opened(self.path) as file, zipfile.ZipFile(file) as archive:
                names = archive.namelist()
        except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
            raise RecordError(f"{self.path} needs to be a whole file, got one that was cut off: {error}.") from None
        return "torch" if any(name.endswith("data.pkl") for name in names) else "npz"


RECORDER = "trimtab.Recorder, three lines in the training loop"


def sample_records(file: DumpFile) -> Iterator[dict[str, Any]]:
    """The samples of a `.pt` file."""
    return iter(file.samples)


def whole_record(file: DumpFile) -> Iterator[Any]:
    """A `.pt` or `.pkl` file as one record."""
    return iter([file.content])


def line_records(file: DumpFile) -> Iterator[dict[str, Any] | RecordError]:
    """The records of a file of JSON Lines."""
    return json_lines(file.path, file.start, file.end)


@dataclass(frozen=True, kw_only=True)
class DumpReader:
    """One sort of file of one framework."""

    framework: str
    files: str
    """How its files are called."""
    option: str
    """What makes the framework write them."""
    knows: Callable[[DumpFile], bool]
    """Whether a file is of this sort."""
    rows: Callable[[Any, DumpFile], Iterable[DumpRow]]
    """The sequences of one record. What it lacks is a KeyError, TypeError, ValueError or RecordError of that record alone."""
    records: Callable[[DumpFile], Iterator[Any]] = line_records
    """A file in parts, one at a time; a RecordError it gives is a part that cannot be read, one it raises ends the file."""
    absent: Mapping[str, str] = field(default_factory=dict[str, str])
    """Columns that such a file never has, each with what brings them."""
    family: str = ""
    """Readers of one family may hold the same sequences: of a folder with files of several, those of the first are taken."""
    copies: bool = False
    """Whether several files may hold the same sequence, as ranks of one group do."""
    notes: tuple[str, ...] = ()
    """What holds of every such file and a reader of the audit should know."""
