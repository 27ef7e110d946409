"""A batch as a training loop has it, copied out of its hands and laid out as sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import InputError
from trimtab.records.saved import COLUMNS


@dataclass(frozen=True, eq=False)
class TrainedBatch:
    """Columns as arrays of the host, rows not yet cut."""

    per_token: Mapping[str, NDArray[Any]]
    per_row: Mapping[str, list[Any]]
    attention: NDArray[Any] | None
    ends: list[int] | None
    facts: Mapping[str, int | None]

    @classmethod
    def copy_of(
        cls,
        per_token: Mapping[str, Any],
        per_row: Mapping[str, Any],
        attention: Any,
        cu_seqlens: Any,
        facts: Mapping[str, int | None],
    ) -> TrainedBatch:
        """Copy everything, and refuse what does not fit together while its maker is there to hear it."""
        columns = {name: _as_type(name, host_array(value)) for name, value in per_token.items() if value is not None}
        name = "tokens" if "tokens" in columns else "mask"  # without tokens the mask says how many there are
        tokens = columns.get("tokens", columns["trained"])
        if tokens.ndim not in (1, 2) or (tokens.ndim == 1) != (cu_seqlens is not None):
            raise InputError(
                f"Recorder needs {name} [rows, width], or [tokens] with cu_seqlens, got shape {tokens.shape} "
                f"{'with' if cu_seqlens is not None else 'without'} cu_seqlens."
            )
        ends = None if cu_seqlens is None else [int(end) for end in host_array(cu_seqlens)]
        count = len(tokens) if ends is None else len(ends) - 1
        if ends is not None and (not ends or ends[0] != 0 or ends[-1] != len(tokens) or sorted(ends) != ends):
            raise InputError(
                f"Recorder needs cu_seqlens that rise from 0 to the count of tokens ({len(tokens)}), got {ends[:8]}."
            )
        for column_name, column in columns.items():
            _check(column_name, column, tokens, count)
        padding = None if attention is None else host_array(attention).astype(bool)
        if padding is not None and padding.shape != tokens.shape:
            raise InputError(f"Recorder needs attention of shape {tokens.shape}, got {padding.shape}.")
        rows = {name: _as_list(name, value, count) for name, value in per_row.items() if value is not None}
        return cls(columns, rows, padding, ends, facts)

    @property
    def layout(self) -> NDArray[Any]:
        """The column that says where tokens are."""
        return self.per_token.get("tokens", self.per_token["trained"])

    @property
    def step(self) -> int:
        """The step it was trained in."""
        return int(self.facts["step"] or 0)

    def rows(self, source: str) -> list[dict[str, Any]]:
        """Each sequence under the names of `SavedBatch`."""
        return [self._row(index, span, source) for index, span in enumerate(self._spans())]

    def _spans(self) -> Iterator[slice]:
        if self.ends is None:
            return (slice(None) for _ in self.layout)
        return (slice(start, end) for start, end in pairwise(self.ends))

    def _row(self, index: int, span: slice, source: str) -> dict[str, Any]:
        present = (
            None if self.attention is None else (self.attention[index] if self.ends is None else self.attention[span])
        )
        tokens = self.layout[index] if self.ends is None else self.layout[span]
        row: dict[str, Any] = {
            "source": source,
            **self.facts,
            **{name: values[index] for name, values in self.per_row.items()},
        }
        for name, column in self.per_token.items():
            values = self._values(column, index, span, len(tokens), name)
            row[name] = values if present is None else values[present]
        return row

    def _values(self, column: NDArray[Any], index: int, span: slice, length: int, name: str) -> NDArray[Any]:
        """A column's values of one row: of all its tokens, of the last of them, or one for all."""
        if column.ndim < self.layout.ndim or (self.ends is not None and len(column) != len(self.layout)):
            return np.full(length, column[index])
        values = column[index] if self.ends is None else column[span]
        return np.concatenate([np.full(length - len(values), COLUMNS[name].unknown, values.dtype), values])


def host_array(value: Any) -> NDArray[Any]:
    """A copy of a tensor or array in numpy; torch is not imported for it."""
    if hasattr(value, "detach"):
        value = value.detach()
        if str(value.dtype) == "torch.bfloat16":  # numpy has none
            value = value.float()
        return np.array(value.cpu().numpy())
    return np.array(value)


def _as_type(name: str, column: NDArray[Any]) -> NDArray[Any]:
    kind = COLUMNS[name].kind
    return column > 0 if kind is np.bool_ else column.astype(kind, copy=False)


def _check(name: str, column: NDArray[Any], tokens: NDArray[Any], count: int) -> None:
    one_each = name in ("advantage", "versions") and column.shape == (count,)
    fits = column.shape == tokens.shape or (
        tokens.ndim == column.ndim == 2 and len(column) == count and column.shape[1] <= tokens.shape[1]
    )
    if not one_each and not fits:
        raise InputError(f"Recorder needs {name} that fits tokens of shape {tokens.shape}, got shape {column.shape}.")


def _as_list(name: str, value: Any, count: int) -> list[Any]:
    values = host_array(value).tolist() if hasattr(value, "dtype") else list(value)
    if len(values) != count:
        raise InputError(f"Recorder needs {name} with one value per row ({count}), got {len(values)}.")
    return [float(each) if name == "reward" else str(each) for each in values]
