"""Run directories of `trimtab train`, and parts that `trimtab.Recorder` wrote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError
from trimtab.records.dumps.columns import COLUMN_NAMES, group_bytes, parquet_rows
from trimtab.records.dumps.reader import DumpFile, DumpReader
from trimtab.records.dumps.room import check_room
from trimtab.records.dumps.row import DumpRow, after
from trimtab.records.rollouts import Rollouts
from trimtab.records.run import RunDirectory
from trimtab.records.saved import BATCH_MARK, BATCH_SCHEMA, PER_SEQUENCE, PER_TOKEN
from trimtab.records.schema import RolloutRow, rows_from

_BESIDE = ("behavior", "proximal", "current", "reference", "advantage", "versions")


def _is_run(file: DumpFile) -> bool:
    return file.kind == "run"


def _run_records(file: DumpFile) -> Iterator[RolloutRow]:
    run = RunDirectory.read(file.path)
    rollouts = Rollouts(run.path / "rollouts")
    check_room(file.path, sum(map(_unpacked, rollouts.files())))
    for block in rollouts.blocks():
        yield from rows_from(block)


def _unpacked(path: Path) -> int:
    """What a file of rollouts comes to in memory."""
    try:
        with opened(path) as source:
            metadata = pq.read_metadata(source)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RecordError(f"{path} needs to be a parquet file of rollouts, got a damaged one: {error}.") from error
    names = [metadata.schema.column(index).path.partition(".")[0] for index in range(metadata.num_columns)]
    return sum(group_bytes(metadata.row_group(group), names) for group in range(metadata.num_row_groups))


def _run_rows(row: RolloutRow, file: DumpFile) -> Iterator[DumpRow]:
    prompt = len(row.prompt_tokens)
    yield DumpRow(
        tokens=np.concatenate([row.prompt_tokens, row.tokens]),
        trained=np.concatenate([np.zeros(prompt, bool), row.mask]),
        group=(str(file.path), row.group),
        reward=row.reward,
        step=row.step,
        learner_version=row.version,
        finish=row.finish,
        text=row.prompt + row.response,
        **{name: after(prompt, getattr(row, name), name) for name in _BESIDE},
    )


OWN_RUN = DumpReader(
    framework="trimtab",
    files="a run directory",
    option="`trimtab train`; `record.rollouts` is the share of groups it keeps",
    knows=_is_run,
    records=_run_records,
    rows=_run_rows,
)


def _is_part(file: DumpFile) -> bool:
    return file.schema is not None and BATCH_MARK in (file.schema.metadata or {})


def _part_records(file: DumpFile) -> Iterator[dict[str, Any]]:
    metadata = {} if file.schema is None else file.schema.metadata
    if (found := metadata[BATCH_MARK].decode(errors="replace")) != str(BATCH_SCHEMA):
        raise RecordError(
            f"{file.path} needs a batch of schema {BATCH_SCHEMA}, got {found}. Read it with the trimtab that wrote it."
        )
    return parquet_rows(file, {name: name for name in COLUMN_NAMES if name in file.names})


def _part_rows(record: dict[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    known = {name: record[name] for name in (*PER_TOKEN, *PER_SEQUENCE) if record.get(name) is not None}
    if "group" in known:
        known["group"] = (record.get("step"), known["group"])
    yield DumpRow(**known)


RECORDED = DumpReader(
    framework="trimtab",
    files="step-{N}-rank-{R}-{part}.parquet",
    option="`trimtab.Recorder`",
    knows=_is_part,
    records=_part_records,
    rows=_part_rows,
)
