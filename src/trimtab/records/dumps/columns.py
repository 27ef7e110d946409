"""Any parquet, JSON Lines, npz or safetensors file, by the names of its columns.

A record is a sequence with lists per token (parquet, JSON Lines), a padded array has a sequence per row, a packed one has all
behind each other and says where they end (npz, safetensors). Index t of a column is token t's; a column of log-probs that is
one shorter than the tokens begins with the second token. Columns of the response alone need the prompt's tokens named beside them.
"""

# pyarrow carries no types.
from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError, nearest
from trimtab.records.dumps.arrays import named_arrays
from trimtab.records.dumps.reader import DumpFile, DumpReader, line_records
from trimtab.records.dumps.room import TOKEN, check_room, free_room
from trimtab.records.dumps.row import DumpRow, after, float_column, int_column, mask_column
from trimtab.records.saved import BATCH_COLUMNS, LOG_PROBS, PER_SEQUENCE, PER_TOKEN

LAYOUT = ("prompt", "attention", "lengths", "offsets")
"""Columns that say how the others lie: tokens of the prompt, 1 where a token is no padding, tokens per row, ends of packed rows."""
COLUMN_NAMES = (*PER_TOKEN, *PER_SEQUENCE, *LAYOUT)
_CONVERT: Mapping[type[np.generic], Callable[[object], Any]] = {
    np.int64: int_column,
    np.bool_: mask_column,
    np.float32: float_column,
}
_ROWS_AT_ONCE = 64


def columns_reader(columns: Mapping[str, str]) -> DumpReader:
    """A reader of files whose columns are called so: ours to theirs. Those of our own names need not be said."""
    for name in columns:
        if name not in COLUMN_NAMES:
            raise RecordError(f"Columns need names that trimtab has, got {name!r}. {nearest(name, COLUMN_NAMES)}")

    def records(file: DumpFile) -> Iterator[Any]:
        return _records(file, columns)

    return replace(BY_COLUMNS, records=records)


def _knows(file: DumpFile) -> bool:
    return bool({"behavior", "proximal", "current"} & set(file.names)) and file.kind in ("jsonl", "parquet")


def _theirs(names: Iterable[str], columns: Mapping[str, str], file: DumpFile) -> dict[str, str]:
    """Our name to theirs, of all that the file has."""
    names = set(names)
    for ours, theirs in columns.items():
        if theirs not in names:
            raise RecordError(
                f"{file.path} needs a column {theirs!r} for {ours}, got none. {nearest(theirs, sorted(names))}"
            )
    return {name: columns.get(name, name) for name in COLUMN_NAMES if columns.get(name, name) in names}


def _records(file: DumpFile, columns: Mapping[str, str]) -> Iterator[Any]:
    """Sequences with our names."""
    if file.kind == "jsonl":
        return _from_lines(file, columns)
    if file.kind == "parquet":
        return _from_parquet(file, columns)
    if file.kind in ("npz", "safetensors"):
        arrays = named_arrays(file)
        wanted = _theirs(arrays, columns, file)
        return _from_arrays({name: arrays[key] for name, key in wanted.items()}, file)
    raise RecordError(
        f"{file.path} needs to be parquet, JSON Lines, npz or safetensors to be read by its columns, got a file of kind {file.kind}."
    )


def _from_lines(file: DumpFile, columns: Mapping[str, str]) -> Iterator[Any]:
    _theirs(file.first, columns, file)
    for record in line_records(file):
        if isinstance(record, RecordError):
            yield record
        else:
            yield {name: record[columns.get(name, name)] for name in COLUMN_NAMES if columns.get(name, name) in record}


def _from_parquet(file: DumpFile, columns: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    return parquet_rows(file, _theirs(file.names, columns, file))


def parquet_rows(file: DumpFile, wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The rows of a parquet file with some of its columns under names of ours."""
    most, taken, names = free_room(), 0, list(wanted.values())
    texts = [field.name for field in file.schema or () if pa.types.is_string(field.type) and field.name in names]
    try:
        with opened(file.path) as source, pq.ParquetFile(source, read_dictionary=texts) as parquet:
            for group in range(parquet.num_row_groups):
                taken += group_bytes(parquet.metadata.row_group(group), names)
                check_room(file.path, taken, most)
                for block in parquet.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=names):
                    yield from _table_rows(block, wanted)
    except (pa.ArrowException, OSError) as error:
        raise RecordError(f"{file.path} cannot be read to its end: {error}.") from error


def group_bytes(group: Any, names: Collection[str]) -> int:
    """What some columns of a row group come to in memory, by what the file says of them."""
    chunks = [group.column(index) for index in range(group.num_columns)]
    wanted = [chunk for chunk in chunks if chunk.path_in_schema.partition(".")[0] in names]
    tokens = max((chunk.num_values for chunk in wanted), default=0)
    return tokens * TOKEN + sum(chunk.total_uncompressed_size for chunk in wanted)


def _table_rows(block: Any, wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    cells = {name: block.column(key) for name, key in wanted.items()}
    for index in range(block.num_rows):
        yield {name: _cell(column[index]) for name, column in cells.items()}


def _cell(scalar: Any) -> Any:
    if scalar.is_valid and pa.types.is_list(scalar.type) | pa.types.is_large_list(scalar.type):
        return scalar.values.to_numpy(zero_copy_only=False)
    return scalar.as_py()


def _from_arrays(arrays: dict[str, Any], file: DumpFile) -> Iterator[dict[str, Any]]:
    """Rows of a padded array, or stretches of a packed one."""
    shapes = {name: array.shape for name, array in arrays.items() if name in PER_TOKEN}
    if not shapes:
        raise RecordError(
            f"{file.path} needs a column per token, got {', '.join(arrays) or 'none'}. Name one with --columns."
        )
    if all(len(shape) == 2 for shape in shapes.values()):
        count = next(iter(shapes.values()))[0]
        return ({name: array[index] for name, array in arrays.items()} for index in range(count))
    ends = _ends(arrays, file)
    return (
        {
            name: array[start:end] if name in PER_TOKEN else array[index]
            for name, array in arrays.items()
            if name not in LAYOUT
        }
        for index, (start, end) in enumerate(pairwise(ends))
    )


def _ends(arrays: Mapping[str, Any], file: DumpFile) -> list[int]:
    if "offsets" in arrays:
        return [int(end) for end in arrays["offsets"]]
    if "lengths" in arrays:
        return [0, *np.cumsum(arrays["lengths"]).tolist()]
    raise RecordError(
        f"{file.path} needs the ends of its sequences, as its arrays have one dimension. "
        "Name the array that has them: --columns offsets=… (0, then each end) or lengths=…"
    )


def _rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    per_token = {
        name: _CONVERT[np.bool_ if name == "attention" else BATCH_COLUMNS[name].kind](record[name])
        for name in (*PER_TOKEN, "attention")
        if name in record and record[name] is not None and not (name == "advantage" and np.ndim(record[name]) == 0)
    }
    prompt = int_column(record["prompt"]) if record.get("prompt") is not None else None
    if prompt is not None:
        per_token = _with_prompt(prompt, per_token)
    length = max(len(column) for column in per_token.values())
    per_token = {name: _align(name, column, length) for name, column in per_token.items()}
    if "trained" not in per_token:
        per_token["trained"] = _mask_of_log_probs(per_token, length)
    if record.get("advantage") is not None and "advantage" not in per_token:
        per_token["advantage"] = np.full(length, float(record["advantage"]), np.float32)
    real = _real_tokens(record, 0 if prompt is None else len(prompt), length)
    yield DumpRow(**_present(per_token, real), **_facts(record))


def _with_prompt(prompt: Any, columns: dict[str, Any]) -> dict[str, Any]:
    attention = columns.pop("attention", None)
    whole: dict[str, Any] = {name: after(len(prompt), column, name) for name, column in columns.items()}
    if "tokens" in whole:
        whole["tokens"][: len(prompt)] = prompt
    if attention is not None:  # of the response, as the others are: a prompt is written without padding
        whole["attention"] = np.concatenate([np.ones(len(prompt), bool), attention])
    return whole


def _align(name: str, column: Any, length: int) -> Any:
    """A column of log-probs that is one short begins with the second token."""
    return after(1, column, name) if name in LOG_PROBS and len(column) == length - 1 else column


def _mask_of_log_probs(columns: Mapping[str, Any], length: int) -> Any:
    """Without a mask, what the sampler gave a log-prob counts as trained."""
    for name in ("behavior", "proximal", "current"):
        if name in columns:
            return np.isfinite(columns[name])
    return np.zeros(length, bool)


def _real_tokens(record: Mapping[str, Any], prompt: int, width: int) -> int | None:
    """How many tokens stand before the padding, where `lengths` says so: of the response, where the prompt stands beside it."""
    if record.get("lengths") is None:
        return None
    length = int(record["lengths"])
    if not 0 <= length <= width - prompt:
        raise RecordError(
            f"A row needs lengths between 0 and its {width - prompt} places, got {length}. "
            "Count the response alone where the prompt stands beside it."
        )
    return prompt + length


def _present(columns: dict[str, Any], length: int | None) -> dict[str, Any]:
    """The columns without padding, where it is known which tokens are padding."""
    attention = columns.pop("attention", None)
    if attention is not None:
        return {name: column[attention] for name, column in columns.items()}
    return columns if length is None else {name: column[:length] for name, column in columns.items()}


def _facts(record: Mapping[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {name: record[name] for name in PER_SEQUENCE if record.get(name) is not None}
    for name, value in facts.items():
        value = value.item() if isinstance(value, np.generic | np.ndarray) else value
        facts[name] = str(value) if BATCH_COLUMNS[name].kind is np.str_ else value
    return facts


BY_COLUMNS = DumpReader(
    framework="columns",
    files="any parquet, JSON Lines, npz or safetensors",
    option="`--columns behavior=…,proximal=…`",
    knows=_knows,
    records=lambda file: _records(file, {}),
    rows=_rows,
)
