"""The parquet form of a saved batch: one row per sequence, a version in its metadata; what `Recorder` writes.

The columns are those of `SavedBatch`, lists where it has a value per token, in its types and with its alignment. A column that
is not known is not there, or null in some rows. `group` is text: whatever tells the prompts of a step apart.
"""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.records.files import utf8_text, whole_file

BATCH_SCHEMA = 1
"""Raised when a reader of before could misread what is written now."""
BATCH_MARK = b"trimtab.batch"

_TYPES: dict[str, pa.DataType] = {
    "step": pa.int64(),
    "learner_version": pa.int64(),
    "group": pa.string(),
    "reward": pa.float64(),
    "finish": pa.string(),
    "source": pa.string(),
    "text": pa.string(),
    "tokens": pa.list_(pa.int64()),
    "trained": pa.list_(pa.bool_()),
    "behavior": pa.list_(pa.float32()),
    "proximal": pa.list_(pa.float32()),
    "current": pa.list_(pa.float32()),
    "reference": pa.list_(pa.float32()),
    "advantage": pa.list_(pa.float32()),
    "versions": pa.list_(pa.int64()),
}
"""Every column of the form, in the order it is written."""


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, str]) -> None:
    """Write sequences as one file that is whole or absent; `facts` stand in its metadata."""
    named = [name for name in _TYPES if any(row.get(name) is not None for row in rows)]
    columns = [pa.array([_cell(row.get(name)) for row in rows], _TYPES[name]) for name in named]
    marks = {BATCH_MARK.decode(): str(BATCH_SCHEMA), **facts}
    schema = pa.schema([pa.field(name, _TYPES[name]) for name in named], metadata=marks)
    with whole_file(path) as handle:
        pq.write_table(pa.table(columns, schema=schema), handle, compression="zstd")


def _cell(value: Any) -> Any:
    return utf8_text(value) if isinstance(value, str) else value
