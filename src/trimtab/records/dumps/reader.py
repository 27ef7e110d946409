"""What a reader of one sort of file is: a row of the table in `readers`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.errors import RecordError
from trimtab.records.dumps.dump_file import DumpFile
from trimtab.records.dumps.jsonl import json_lines
from trimtab.records.dumps.row import DumpRow

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
