"""Rollout files: rows gathered for some steps, then one parquet file of them."""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError
from trimtab.records.files import whole_file
from trimtab.records.schema import ROWS, SCHEMA, RolloutRow, table_of


class Rollouts:
    """The rows of a run: in memory until a block of `every` steps is full, then in the block's file."""

    def __init__(self, folder: Path, every: int = 10, share: float = 1.0) -> None:
        self.folder = folder
        self.every = every
        self.share = share
        self._waiting: list[RolloutRow] = []
        self._written: Counter[int] = Counter()

    @property
    def counts(self) -> Counter[int]:
        """Rows recorded of each step, on disk or waiting; of a run opened again, known once it was rewound."""
        return self._written + Counter(row.step for row in self._waiting)

    def add(self, rows: Sequence[RolloutRow]) -> None:
        """Take rows in; the block's last step, or a step of another block, sends what waits to disk."""
        for row in rows:
            if self._waiting and self._block(row.step) != self._block(self._waiting[0].step):
                self.flush()
            if is_recorded(row.group, self.share):
                self._waiting.append(row)
        if self._waiting and self._block(self._waiting[-1].step + 1) != self._block(self._waiting[0].step):
            self.flush()

    def flush(self) -> None:
        """Write what waits; rows the file of that block already has stay before them."""
        if not self._waiting:
            return
        self.folder.mkdir(exist_ok=True)  # not what is above it: a run that was removed is not made again
        path = self.folder / f"step-{self._block(self._waiting[0].step):06d}.parquet"
        table = table_of(self._waiting)
        _write(path, pa.concat_tables([_read(path), table]) if path.exists() else table)
        self._written += Counter(row.step for row in self._waiting)
        self._waiting = []

    def table(self, steps: Collection[int] | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows on disk, of all or some steps, all or some columns."""
        keep = None if steps is None else [("step", "in", [int(step) for step in steps])]
        schema = ROWS if columns is None else pa.schema([ROWS.field(name) for name in columns], metadata=ROWS.metadata)
        if steps is not None and not len(steps):
            return schema.empty_table()
        names = None if columns is None else list(columns)
        return pa.concat_tables([schema.empty_table(), *(_read(path, keep, names) for path in self.files())])

    def blocks(self) -> Iterator[pa.Table]:
        """The rows on disk, a file at a time."""
        return map(_read, self.files())

    def files(self) -> list[Path]:
        """Every rollout file, by step."""
        return sorted(self.folder.glob("step-*.parquet"))

    def rewind(self, step: int) -> int:
        """Drop the rows of that step and later ones; how many went."""
        gone = sum(row.step >= step for row in self._waiting)
        self._waiting = [row for row in self._waiting if row.step < step]
        self._written.clear()
        for path in self.files():
            steps = _steps(path)  # one column of many: a long run has much that stays as it is
            kept = [each for each in steps if each < step]
            self._written.update(kept)
            gone += len(steps) - len(kept)
            if not kept:
                path.unlink()
            elif len(kept) < len(steps):
                table = _read(path)
                _write(path, table.filter(pc.less(table.column("step"), step)))
        return gone

    def _block(self, step: int) -> int:
        return step // self.every * self.every


def is_recorded(group: int, share: float) -> bool:
    """Whether a group is among the recorded ones: evenly spaced, the same ones in every run."""
    # A share of 0.25 records groups 3, 7, 11, …: where the count of recorded ones, ⌊(group + 1) / 4⌋, goes up.
    return math.floor((group + 1) * share) > math.floor(group * share)


def _write(path: Path, table: pa.Table) -> None:
    with whole_file(path) as handle:
        pq.write_table(table, handle, compression="zstd")


def _steps(path: Path) -> list[int]:
    return _read(path, None, ["step"]).column("step").to_pylist()


def _read(path: Path, keep: object = None, columns: list[str] | None = None) -> pa.Table:
    try:
        with opened(path) as source:
            with pq.ParquetFile(source) as file:
                _check(path, file.schema_arrow)
            source.seek(0)
            return pq.read_table(source, filters=keep, columns=columns, schema=ROWS)
    except FileNotFoundError:  # whoever only reads may be overtaken by a run that is rewound
        return (ROWS if columns is None else pa.schema([ROWS.field(name) for name in columns])).empty_table()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RecordError(
            f"{path} needs to be a parquet file of rollouts, got a damaged one. Delete it to read the rest."
        ) from error


def _check(path: Path, schema: pa.Schema) -> None:
    found = (schema.metadata or {}).get(b"trimtab.schema", b"none").decode(errors="replace")
    if found != str(SCHEMA):
        raise RecordError(f"{path} needs rows of schema {SCHEMA}, got {found}. Read it with the trimtab that wrote it.")
