"""One sequence as a file has it, many of them gathered as a `SavedBatch`, and numbers that stand for a log-prob nobody knows."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import RecordError
from trimtab.records.saved import BATCH_COLUMNS, LOG_PROBS, PER_SEQUENCE, PER_TOKEN, Column, Origin, SavedBatch

_MOST_SHOWN = 40
"""Characters of a value that an error quotes."""


@dataclass(frozen=True, eq=False, kw_only=True)
class DumpRow:
    """One sequence, prompt and response together; the columns of `SavedBatch` where a file has them."""

    trained: NDArray[Any]
    tokens: NDArray[Any] | None = None
    behavior: NDArray[Any] | None = None
    proximal: NDArray[Any] | None = None
    current: NDArray[Any] | None = None
    reference: NDArray[Any] | None = None
    advantage: NDArray[Any] | None = None
    entropy: NDArray[Any] | None = None
    versions: NDArray[Any] | None = None
    group: Hashable = None
    """Whatever tells the prompts of one step apart; equal values are one group, None is no answer."""
    reward: float | None = None
    step: int | None = None
    learner_version: int | None = None
    finish: str | None = None
    source: str | None = None
    text: str | None = None

    def __post_init__(self) -> None:
        for name in PER_TOKEN:
            column = getattr(self, name)
            if column is not None and len(column) != len(self.trained):
                raise RecordError(
                    f"A sequence of {len(self.trained)} tokens needs as many values of {name}, got {len(column)}."
                )
        for name in ("reward", "step", "learner_version"):
            _check_number(name, getattr(self, name))
        try:
            hash(self.group)
        except TypeError:
            raise RecordError(f"A sequence needs one value for group, got {_shortened(self.group)}.") from None


def _check_number(name: str, value: object) -> None:
    """Refuse what the column of a batch cannot hold, while it is known which record it stands in."""
    try:
        fits = value is None or np.asarray(value, _kind(name)[0]).ndim == 0
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise RecordError(f"A sequence needs one number for {name}, got {_shortened(value)}.")


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


class Gathering:
    """Rows on their way to a batch: one array per row and column, joined once."""

    def __init__(self) -> None:
        self.tokens = 0
        self.copies = 0
        self._seen: set[bytes] = set()
        self._lengths: list[int] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in (*PER_TOKEN, *PER_SEQUENCE)}
        self._groups: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """How many rows."""
        return len(self._lengths)

    def is_new(self, row: DumpRow) -> bool:
        """Whether no row asked about before held the same numbers; copies are counted."""
        columns = (getattr(row, name) for name in PER_TOKEN)
        digest = hashlib.blake2b(
            b"|".join(b"" if each is None else np.ascontiguousarray(each).tobytes() for each in columns)
        )
        known = digest.digest() in self._seen
        self._seen.add(digest.digest())
        self.copies += known
        return not known

    def add(self, row: DumpRow) -> None:
        """Take in a row."""
        self._lengths.append(len(row.trained))
        self.tokens += len(row.trained)
        for name in PER_TOKEN:
            column = getattr(row, name)
            self._columns[name].append(None if column is None else np.asarray(column, _kind(name)[0]))
        for name in PER_SEQUENCE:
            self._columns[name].append(getattr(row, name))

    def batch(self, origin: Origin) -> SavedBatch:
        """All rows as one batch. It takes them out: what they held is free once it is joined."""
        partly = [name for name, column in self._columns.items() if 0 < sum(map(_absent, column)) < len(self)]
        offsets = np.concatenate([[0], np.cumsum(self._lengths, dtype=np.int64)]).astype(np.int64)
        per_token: dict[str, Any] = {name: self._whole_column(name) for name in PER_TOKEN}
        per_sequence = {name: self._row_column(name) for name in PER_SEQUENCE}
        notes = list(origin.notes)
        if per_sequence["group"] is None and per_token["tokens"] is not None:
            per_sequence["group"] = _groups_of(offsets, per_token["tokens"], per_token["trained"], per_sequence["step"])
            notes.append("The file names no groups: sequences of a step with the same prompt tokens form one.")
        if partly:
            notes.append(f"Only some sequences have {', '.join(partly)}; the others count as unknown.")
        noted = Origin(framework=origin.framework, files=origin.files, notes=tuple(notes), absent=origin.absent)
        return SavedBatch(origin=noted, offsets=offsets, **(per_token | per_sequence))

    def _whole_column(self, name: str) -> NDArray[Any] | None:
        column = self._columns.pop(name)
        if name != "trained" and all(map(_absent, column)):
            return None
        dtype, fill = _kind(name)
        parts = [
            np.full(length, fill, dtype) if part is None else part
            for part, length in zip(column, self._lengths, strict=True)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype)

    def _row_column(self, name: str) -> Any:
        column = self._columns.pop(name)
        if all(map(_absent, column)):
            return None
        if name == "group":
            return np.array([self._group(key) for key in column], np.int64)
        if BATCH_COLUMNS[name].kind is np.str_:
            return tuple("" if value is None else str(value) for value in column)
        dtype, fill = _kind(name)
        return np.array([fill if value is None else value for value in column], dtype)

    def _group(self, key: Hashable) -> int:
        """A number for each key; a sequence without one is a group of its own."""
        return self._groups.setdefault(object() if key is None else key, len(self._groups))


def float_column(values: object) -> NDArray[np.float32]:
    """Numbers as float32; what is null or no number counts as unknown, and so does what float32 cannot hold: it becomes infinite."""
    with np.errstate(over="ignore"):
        return np.asarray(values, np.float32).reshape(-1)


def int_column(values: object) -> NDArray[np.int64]:
    """Whole numbers."""
    return np.asarray(values, np.int64).reshape(-1)


def mask_column(values: object) -> NDArray[np.bool_]:
    """True where a number is not 0."""
    return float_column(values) > 0


def after(prompt: int, values: NDArray[Any] | None, name: str) -> Any:
    """A column of the response alone, with the prompt's places in front of it, which hold nothing."""
    if values is None:
        return None
    dtype, fill = _kind(name)
    return np.concatenate([np.full(prompt, fill, dtype), np.asarray(values, dtype)])


def text_row(words: str, **facts: Any) -> DumpRow:
    """A sequence of which there is only text."""
    return DumpRow(trained=np.empty(0, bool), text=words, **facts)


def padded_rows(
    tokens: NDArray[Any],
    attention: NDArray[Any],
    columns: Mapping[str, NDArray[Any]],
    facts: Sequence[Mapping[str, Any]],
) -> Iterator[DumpRow]:
    """Rows of a padded batch without their padding.

    A column that is narrower than the tokens is of the last of them: column j of R stands at place S - R + j of S, wherever the
    padding is. That holds for responses that end with their row and for those that are padded behind.
    """
    wide = tokens.shape[1]
    for index, present in enumerate(attention.astype(bool)):
        cut = {name: after(wide - column.shape[1], column[index], name) for name, column in columns.items()}
        known = {name: column[present] for name, column in cut.items() if column is not None}
        yield DumpRow(tokens=tokens[index][present], **known, **facts[index])


_NUMBER = Column(np.float32)


def _kind(name: str) -> tuple[type[np.generic], float | int]:
    """The type of a column, and what stands in it where a row says nothing; layouts are numbers."""
    column = BATCH_COLUMNS.get(name, _NUMBER)
    return column.kind, column.unknown


def _absent(value: object) -> bool:
    return value is None


def _groups_of(
    offsets: NDArray[np.int64], tokens: NDArray[Any], trained: NDArray[Any], steps: NDArray[np.int64] | None
) -> NDArray[np.int64]:
    """Sequences of one step that begin with the same tokens up to the first that was trained."""
    seen: dict[tuple[int, bytes], int] = {}
    groups: list[int] = []
    for index, (start, end) in enumerate(pairwise(offsets.tolist())):
        chosen = trained[start:end]
        first = int(chosen.argmax()) if chosen.any() else end - start
        key = -1 if steps is None else int(steps[index]), tokens[start : start + first].tobytes()
        groups.append(seen.setdefault(key, len(seen)))
    return np.array(groups, np.int64)


FILLS = (1.0, -30.0, -100.0, -999.0, -1e3, -9999.0, -1e4, -1e5, -1e6, -1e9, -1e10, float(np.finfo(np.float32).min))
"""Written where there is nothing; no log-prob happens to be one of them to the last bit."""
_IMPOSSIBLE = 0.1
"""A log-prob above this is of a probability above 1: no rounding does that, a sentinel does."""
_NEAR = -1e-3
_FAR = -0.5
_USUAL = 0.01


def without_fills(batch: SavedBatch) -> SavedBatch:
    """The batch with NaN for what a writer filled in, and a note on each sort."""
    known = {name: getattr(batch, name) for name in LOG_PROBS if getattr(batch, name) is not None}
    mended: dict[str, Any] = {}
    notes: list[str] = []
    for name, values in known.items():
        sorts = _sorts(name, known, batch.trained)
        filled = np.logical_or.reduce(list(sorts.values()))
        if filled.any():
            mended[name] = np.where(filled, np.float32(np.nan), values)
        notes += [_note(name, words, found, batch.trained) for words, found in sorts.items() if found.any()]
    origin = replace(batch.origin, notes=(*batch.origin.notes, *notes))
    return replace(batch, origin=origin, **mended)


def _sorts(name: str, known: Mapping[str, NDArray[Any]], trained: NDArray[np.bool_]) -> dict[str, NDArray[np.bool_]]:
    values = known[name]
    with np.errstate(invalid="ignore"):
        zero = values == 0
        return {
            "0.0 outside the mask": zero & ~trained,
            "0.0 beside a log-prob of the other side that is far from it": _zeros(name, known, zero & trained),
            "a filler such as -30 or -9999": np.isin(values, np.array(FILLS, np.float32)),
            "infinite": np.isinf(values),
            "above 0, which no log-prob is": np.isfinite(values) & (values > _IMPOSSIBLE),
        }


def _zeros(name: str, known: Mapping[str, NDArray[Any]], zero: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Zeros of trained tokens to which another policy gave less than 0.6.

    A token of probability 1 has a true log-prob of 0.0, and the other side is near it. So are values just below 0: where those
    are far from the other side too, the columns are shifted or of other tokens, and their zeros are left for an audit to see.
    """
    other = next((column for key, column in known.items() if key != name), None)
    if other is None or not zero.any():
        return np.zeros_like(zero)
    far = other < _FAR
    near = (known[name] < 0) & (known[name] > _NEAR) & np.isfinite(other)
    if near.any() and float((far & near).sum()) > _USUAL * float(near.sum()):
        return np.zeros_like(zero)
    return zero & far


def _note(name: str, words: str, found: NDArray[np.bool_], trained: NDArray[np.bool_]) -> str:
    total, inside = int(found.sum()), int((found & trained).sum())
    share = f", {inside} of them trained" if 0 < inside < total else ", all of them trained" if inside else ""
    return f"{name}: {total} values are {words} and count as missing{share}."
