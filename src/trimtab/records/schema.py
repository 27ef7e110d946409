"""One trained response as a row of a parquet file."""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.errors import InputError, RecordError
from trimtab.records.files import utf8_text

SCHEMA = 1
"""Version of the run directory and of the rows; raised when a reader of before could misread what is written now."""

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, kw_only=True)
class RolloutRow:
    """One response as the learner trained on it; arrays beside `prompt_tokens` have one value per response token."""

    step: int
    """Learner step that trained on it."""
    version: int
    """Version of the learner's weights at the start of that step."""
    group: int
    sample: int
    """Number of the response in its group, from 0."""
    problem: str
    """The problem's id."""
    prompt: str
    response: str
    prompt_tokens: Ints
    tokens: Ints
    behavior: Floats | None = None
    """Log-probs; None, here and below, where they were not worked out."""
    raw: Floats | None = None
    proximal: Floats | None = None
    current: Floats | None = None
    reference: Floats | None = None
    mask: Bools
    """Which tokens were to be trained: not those that the environment wrote."""
    versions: Ints
    """Version of the weights that sampled each token; −1 where none did, as in an environment's replies."""
    kept: Bools
    """The mask after the gates."""
    weight: Floats
    advantage: Floats
    reward: float
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Each reward before its weight, by name."""
    correct: bool
    finish: str
    staleness: int
    """Learner's version less that of the oldest token."""
    failed: str | None = None
    """Why a verifier could not score it."""
    head_counts: Ints | None = None
    """How many ids were recorded of the distribution each token was drawn from; None: nothing was."""
    head_ids: Ints | None = None
    """These ids, those of one token after those of another."""
    head_log_probs: Floats | None = None
    """Of the ids, under the distribution drawn from."""
    head_log_mass: Floats | None = None
    """Log of the probability that top-k and top-p left of the model's distribution."""

    def __post_init__(self) -> None:
        for name in _per_token():
            values = getattr(self, name)
            if values is not None and len(values) != len(self.tokens):
                raise InputError(
                    f"RolloutRow needs {name} with one value per token ({len(self.tokens)}), got {len(values)}."
                )
        entries = 0 if self.head_counts is None else int(self.head_counts.sum())
        for name in ("head_ids", "head_log_probs"):
            values = getattr(self, name)
            if values is not None and len(values) != entries:
                raise InputError(
                    f"RolloutRow needs {name} with as many values as head_counts adds up to ({entries}), got {len(values)}."
                )


_INTS, _FLOATS, _BOOLS = pa.list_(pa.int32()), pa.list_(pa.float32()), pa.list_(pa.bool_())
_PARTS = pa.map_(pa.string(), pa.float64())
_WRITTEN: dict[Any, pa.DataType] = {
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    str: pa.string(),
    Ints: _INTS,
    Floats: _FLOATS,
    Bools: _BOOLS,
    Mapping[str, float]: _PARTS,
}
"""How a row's values are written, by their type."""


def _column(name: str, kind: Any) -> pa.Field:
    plain = next(each for each in _WRITTEN if kind in (each, each | None))
    return pa.field(name, _WRITTEN[plain], nullable=kind != plain)


ROWS = pa.schema(
    [_column(name, kind) for name, kind in get_type_hints(RolloutRow).items()],
    metadata={"trimtab.schema": str(SCHEMA)},
)
"""The columns of a file of rows: the fields of `RolloutRow` in their order, nullable where one may be None."""


@cache
def _per_token() -> tuple[str, ...]:
    others = ("prompt_tokens", "head_ids", "head_log_probs")
    return tuple(each.name for each in ROWS if pa.types.is_list(each.type) and each.name not in others)


def table_of(rows: Sequence[RolloutRow]) -> pa.Table:
    """The rows as a table of the schema; text that UTF-8 cannot hold has U+FFFD in its place."""
    columns = [pa.array([_TO[column.type](getattr(row, column.name)) for row in rows], column.type) for column in ROWS]
    return pa.table(columns, schema=ROWS)


def rows_from(table: pa.Table) -> list[RolloutRow]:
    """The rows of a whole table, as they were written."""
    absent = [column.name for column in fields(RolloutRow) if column.name not in table.column_names]
    if absent:
        raise RecordError(
            f"A rollout table needs every column, got none called {absent[0]}. Read it without `columns`."
        )
    columns = {column.name: _values(table.column(column.name), column.type) for column in ROWS}
    return [RolloutRow(**{name: values[index] for name, values in columns.items()}) for index in range(table.num_rows)]


def _values(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    if not pa.types.is_list(kind):
        return [_FROM.get(kind, _same)(value) for value in column.to_pylist()]
    return [
        scalar.values.to_numpy(zero_copy_only=False).astype(_DTYPES[kind]) if scalar.is_valid else None
        for scalar in column
    ]


def _same(value: Any) -> Any:
    return value


def _array(dtype: type[np.generic]) -> Callable[[Any], Any]:
    return lambda values: None if values is None else np.asarray(values, dtype)


_DTYPES: dict[pa.DataType, type[np.generic]] = {_INTS: np.int32, _FLOATS: np.float32, _BOOLS: np.bool_}
_TO: dict[pa.DataType, Callable[[Any], Any]] = {
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.string(): lambda text: None if text is None else utf8_text(text),
    _PARTS: lambda parts: [(utf8_text(name), float(part)) for name, part in parts.items()],
    **{kind: _array(dtype) for kind, dtype in _DTYPES.items()},
}
_FROM: dict[pa.DataType, Callable[[Any], Any]] = {_PARTS: dict}
