"""A batch that a training run has saved, whichever framework wrote it: what an audit reads.

Sequences lie end to end, prompt and response together. A column per token has one value for each of them; a column per
sequence has one for each sequence:

    offsets   0           4        7
    tokens    p  p  a  b  p  c  d        p: prompt
    trained   .  .  T  T  .  T  .        d: what a tool answered
    behavior  ?  ?  -1 -2 ?  -3 ?        ?: NaN, nobody said
    reward    1.0         0.0

Index t of a log-prob is that of token t itself, given all before it.

On disk, as `Recorder` writes it, a batch is parquet: one row per sequence, lists where there is a value per token, in the types of
`BATCH_COLUMNS` and with its alignment, a version in the metadata. A column that is not known is not there, or null in some rows.
"""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trimtab.errors import InputError
from trimtab.records.files import utf8_text, whole_file

BATCH_SCHEMA = 1
"""Raised when a reader of before could misread what is written now."""
BATCH_MARK = b"trimtab.batch"
_WRITTEN: dict[type[np.generic], pa.DataType] = {
    np.int64: pa.int64(),
    np.bool_: pa.bool_(),
    np.float32: pa.float32(),
    np.float64: pa.float64(),
    np.str_: pa.string(),
}


@dataclass(frozen=True)
class Column:
    """A column of a saved batch: what it holds in memory and on disk."""

    kind: type[np.generic]
    unknown: float | int = math.nan
    """What stands in it where nothing is known of a token or a sequence; text is empty there."""
    per_token: bool = False
    as_text: bool = False
    """Whether it is text on disk, whatever it is in memory."""

    @property
    def written(self) -> pa.DataType:
        """Its type on disk."""
        kind = _WRITTEN[np.str_ if self.as_text else self.kind]
        return pa.list_(kind) if self.per_token else kind


BATCH_COLUMNS: dict[str, Column] = {
    "tokens": Column(np.int64, -1, per_token=True),
    "trained": Column(np.bool_, False, per_token=True),
    "behavior": Column(np.float32, per_token=True),
    "proximal": Column(np.float32, per_token=True),
    "current": Column(np.float32, per_token=True),
    "reference": Column(np.float32, per_token=True),
    "advantage": Column(np.float32, per_token=True),
    "entropy": Column(np.float32, per_token=True),
    "versions": Column(np.int64, -1, per_token=True),
    "group": Column(np.int64, -1, as_text=True),  # on disk whatever tells the prompts of a step apart
    "reward": Column(np.float64),
    "step": Column(np.int64, -1),
    "learner_version": Column(np.int64, -1),
    "finish": Column(np.str_),
    "source": Column(np.str_),
    "text": Column(np.str_),
}
"""Every column by its name, in saved batches, in rows of dumps, and on disk."""
PER_TOKEN = tuple(name for name, column in BATCH_COLUMNS.items() if column.per_token)
PER_SEQUENCE = tuple(name for name, column in BATCH_COLUMNS.items() if not column.per_token)
_ON_DISK = tuple(dict.fromkeys(("step", "learner_version", *PER_SEQUENCE, *PER_TOKEN)))
LOG_PROBS = ("behavior", "proximal", "current", "reference")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a saved batch comes from."""

    framework: str
    """Its name, as `dialects` has it; `trimtab` for a run of ours, `columns` where the user named the columns."""
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the reader took for missing, dropped or could not read, a sentence each."""
    absent: dict[str, str] = field(default_factory=dict[str, str])
    """Columns that the file cannot have, each with the option or recorder that brings them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedBatch:
    """Sequences with what is known of them; a column is None where the file has none of it."""

    origin: Origin
    offsets: NDArray[np.int64]
    """Sequence i is `offsets[i]:offsets[i + 1]`."""
    trained: NDArray[np.bool_]
    """Whether the loss acted on a token."""
    tokens: NDArray[np.int64] | None = None
    behavior: NDArray[np.float32] | None = None
    """Log-probs by the policy that sampled, NaN where there is none; likewise the next three."""
    proximal: NDArray[np.float32] | None = None
    current: NDArray[np.float32] | None = None
    reference: NDArray[np.float32] | None = None
    advantage: NDArray[np.float32] | None = None
    entropy: NDArray[np.float32] | None = None
    """Of the distribution that the trainer's log-prob of a token is of, at the same temperature."""
    versions: NDArray[np.int64] | None = None
    """Version of the weights that sampled a token, -1 where it is not known."""
    group: NDArray[np.int64] | None = None
    """Sequences of one prompt have one number."""
    reward: NDArray[np.float64] | None = None
    step: NDArray[np.int64] | None = None
    """The step that trained on it."""
    learner_version: NDArray[np.int64] | None = None
    """Version of the learner's weights at the start of that step."""
    finish: tuple[str, ...] | None = None
    """Why it ended: `stop`, `length`, or the writer's own word."""
    source: tuple[str, ...] | None = None
    """The engine, rank or shard that made it."""
    text: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        tokens, sequences = int(self.offsets[-1]), len(self.offsets) - 1
        for names, count in ((PER_TOKEN, tokens), (PER_SEQUENCE, sequences)):
            for name in names:
                column = getattr(self, name)
                if column is not None and len(column) != count:
                    raise InputError(f"SavedBatch needs {name} with {count} values, got {len(column)}.")

    def __len__(self) -> int:
        """How many sequences."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence."""
        return np.diff(self.offsets)

    @property
    def sequence(self) -> NDArray[np.int64]:
        """The sequence that each token belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it has."""
        present = {each.name for each in fields(self) if getattr(self, each.name) is not None}
        return tuple(name for name in (*PER_TOKEN, *PER_SEQUENCE) if name in present)


def part_of(batch: SavedBatch, sequences: NDArray[np.int64]) -> SavedBatch:
    """Some sequences of a batch, in the order asked for."""
    spans = [np.arange(batch.offsets[each], batch.offsets[each + 1]) for each in sequences.tolist()]
    tokens = np.concatenate(spans) if spans else np.empty(0, np.int64)
    chosen: dict[str, Any] = {}
    for names, index in ((PER_TOKEN, tokens), (PER_SEQUENCE, sequences)):
        for name in names:
            column = getattr(batch, name)
            if isinstance(column, tuple):
                chosen[name] = tuple(column[each] for each in index.tolist())  # pyright: ignore[reportUnknownVariableType]
            elif column is not None:
                chosen[name] = column[index]
    offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
    return SavedBatch(origin=batch.origin, offsets=offsets, **chosen)


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, str]) -> None:
    """Write sequences as one file that is whole or absent; `facts` stand in its metadata."""
    named = [name for name in _ON_DISK if any(row.get(name) is not None for row in rows)]
    columns = [pa.array([_cell(row.get(name)) for row in rows], BATCH_COLUMNS[name].written) for name in named]
    marks = {BATCH_MARK.decode(): str(BATCH_SCHEMA), **facts}
    schema = pa.schema([pa.field(name, BATCH_COLUMNS[name].written) for name in named], metadata=marks)
    with whole_file(path) as handle:
        pq.write_table(pa.table(columns, schema=schema), handle, compression="zstd")


def _cell(value: Any) -> Any:
    return utf8_text(value) if isinstance(value, str) else value
