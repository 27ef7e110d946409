"""Parts that `trimtab.Recorder` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.errors import RecordError
from trimtab.records.dumps.columns import NAMES, parquet_rows
from trimtab.records.dumps.dump_file import DumpFile
from trimtab.records.dumps.reader import DumpReader
from trimtab.records.dumps.row import DumpRow
from trimtab.records.saved import PER_SEQUENCE, PER_TOKEN
from trimtab.records.saved_file import BATCH_MARK, BATCH_SCHEMA


def _knows(file: DumpFile) -> bool:
    return file.schema is not None and BATCH_MARK in (file.schema.metadata or {})


def _records(file: DumpFile) -> Iterator[dict[str, Any]]:
    metadata = {} if file.schema is None else file.schema.metadata
    if (found := metadata[BATCH_MARK].decode(errors="replace")) != str(BATCH_SCHEMA):
        raise RecordError(
            f"{file.path} needs a batch of schema {BATCH_SCHEMA}, got {found}. Read it with the trimtab that wrote it."
        )
    return parquet_rows(file, {name: name for name in NAMES if name in file.names})


def _rows(record: dict[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    known = {name: record[name] for name in (*PER_TOKEN, *PER_SEQUENCE) if record.get(name) is not None}
    if "group" in known:
        known["group"] = (record.get("step"), known["group"])
    yield DumpRow(**known)


RECORDED = DumpReader(
    framework="trimtab",
    files="step-{N}-rank-{R}-{part}.parquet",
    option="`trimtab.Recorder`",
    knows=_knows,
    records=_records,
    rows=_rows,
)
