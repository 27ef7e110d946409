"""`Recorder`: what a training loop trained on, written beside it in the form that `trimtab audit` reads.

The loop's thread copies what it is given and goes on; a thread of the recorder's lays it out, compresses and writes it. Where
that thread falls behind, steps are left out and counted: training is never held up, and never ended by a full disk.
"""

from __future__ import annotations

import atexit
import os
import queue
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import ConfigError, InputError, RecordError
from trimtab.records.files import disk_error, make_folder
from trimtab.records.saved import BATCH_COLUMNS, write_rows

_PART = re.compile(r"step-\d+-rank-(\d+)-(\d+)\.parquet")


class Recorder:
    """Writes batches to a folder, one part per recorded step and rank.

        rec = trimtab.Recorder("dump")
        rec.add(step=step, tokens=ids, mask=mask, behavior=sampler_lp, proximal=trainer_lp, advantages=a, rewards=r)
        rec.close()

    every: records each nth step.
    limit: bytes that the parts of this rank may take together; the oldest go first.
    waiting: steps that may wait to be written; one more is left out.
    rank: tells processes apart that write to one folder; torchrun's RANK where it is not given.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        every: int = 1,
        limit: int = 4 << 30,
        waiting: int = 4,
        rank: int | None = None,
    ) -> None:
        for name, value in (("every", every), ("limit", limit), ("waiting", waiting)):
            if value < 1:
                raise ConfigError(f"Recorder needs {name} of at least 1, got {value}.")
        self.folder = Path(folder)
        self.every, self.limit = every, limit
        self.rank = int(os.environ.get("RANK", "0") or 0) if rank is None else rank
        self.written = self.dropped = self.removed = 0
        """Steps written, left out because the writer was behind, and taken away again to stay within the limit."""
        self.error: RecordError | None = None
        """Why nothing more is written, if so."""
        try:
            make_folder(self.folder)
        except OSError as error:
            raise disk_error(self.folder, error) from error
        self._queue: queue.Queue[TrainedBatch | None] = queue.Queue(waiting)
        self._thread: threading.Thread | None = None
        self._owner = os.getpid()
        self._closed = False
        self._parts = self._parts_here()
        self._next = max((number for number, _ in self._parts), default=-1) + 1
        atexit.register(self.close)

    def add(
        self,
        *,
        step: int,
        mask: Any,
        tokens: Any = None,
        behavior: Any = None,
        proximal: Any = None,
        current: Any = None,
        reference: Any = None,
        advantages: Any = None,
        rewards: Any = None,
        groups: Sequence[object] | Any = None,
        versions: Any = None,
        learner_version: int | None = None,
        finish: Sequence[str] | None = None,
        attention: Any = None,
        cu_seqlens: Any = None,
    ) -> bool:
        """Take in a batch, tensors of torch or arrays; whether it will be written.

        Padded `[rows, width]`, or packed `[tokens]` with `cu_seqlens`. Index t of a log-prob is token t's; a padded column that is
        narrower than the tokens stands under the last of them. `advantages` and `versions` may have one value per row.
        Without `tokens`, causes that show in token ids cannot be told. `attention` is 1 where a token is no padding. `groups` tells
        prompts apart, `finish` says why a row ended.
        """
        if step % self.every or self._closed or self.error is not None:
            return False
        per_token = {
            "tokens": tokens,
            "trained": mask,
            "behavior": behavior,
            "proximal": proximal,
            "current": current,
            "reference": reference,
            "advantage": advantages,
            "versions": versions,
        }
        per_row = {"reward": rewards, "group": groups, "finish": finish}
        given = TrainedBatch.copy_of(
            per_token, per_row, attention, cu_seqlens, {"step": step, "learner_version": learner_version}
        )
        self._start()
        try:
            self._queue.put_nowait(given)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def close(self) -> None:
        """Write what waits and end the thread. A second call does nothing; the end of the program calls it too."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._thread is not None and self._owner == os.getpid():
            self._queue.put(None)
            self._thread.join()
        if self.dropped:
            warnings.warn(
                f"Recorder left out {self.dropped} of {self.dropped + self.written} steps: writing them took longer than "
                "training. Record fewer with `every`.",
                stacklevel=2,
            )
        if self.error is not None:
            warnings.warn(f"Recorder stopped writing after {self.written} steps: {self.error}", stacklevel=2)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        """The thread begins with the first batch; a forked child has none of its parent's and writes nothing."""
        if os.getpid() != self._owner:
            raise InputError("Recorder needs to be used in the process that made it. Make one in each process.")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="trimtab-recorder", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (given := self._queue.get()) is not None:
            if self.error is None:
                self._write(given)

    def _write(self, given: TrainedBatch) -> None:
        path = self.folder / f"step-{given.step:06d}-rank-{self.rank}-{self._next:06d}.parquet"
        try:
            write_rows(path, given.rows(f"rank {self.rank}"), self._facts())
            self._parts.append((self._next, path))
            self._next += 1
            self.written += 1
            self._make_room()
        except RecordError as error:
            self.error = error
        except (OSError, ValueError, TypeError, MemoryError, OverflowError) as error:
            self.error = RecordError(f"{path} cannot be written: {error}.")

    def _facts(self) -> Mapping[str, str]:
        return {
            "trimtab.dropped": str(self.dropped),
            "trimtab.removed": str(self.removed),
            "trimtab.every": str(self.every),
        }

    def _make_room(self) -> None:
        """Take away the oldest parts of this rank until all that is left fits; the newest stays."""
        sizes = {path: path.stat().st_size for _, path in self._parts if path.exists()}
        total = sum(sizes.values())
        for number, path in sorted(self._parts)[:-1]:
            if total <= self.limit:
                break
            total -= sizes.get(path, 0)
            path.unlink(missing_ok=True)
            self._parts.remove((number, path))
            self.removed += 1

    def _parts_here(self) -> list[tuple[int, Path]]:
        """What a run of before left for this rank."""
        found = [(match, path) for path in self.folder.glob("step-*.parquet") if (match := _PART.fullmatch(path.name))]
        return [(int(match[2]), path) for match, path in found if int(match[1]) == self.rank]


@dataclass(frozen=True, eq=False)
class TrainedBatch:
    """A batch as a training loop has it, copied: columns as arrays of the host, rows not yet cut."""

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
        return np.concatenate([np.full(length - len(values), BATCH_COLUMNS[name].unknown, values.dtype), values])


def host_array(value: Any) -> NDArray[Any]:
    """A copy of a tensor or array in numpy; torch is not imported for it."""
    if hasattr(value, "detach"):
        value = value.detach()
        if str(value.dtype) == "torch.bfloat16":  # numpy has none
            value = value.float()
        return np.array(value.cpu().numpy())
    return np.array(value)


def _as_type(name: str, column: NDArray[Any]) -> NDArray[Any]:
    kind = BATCH_COLUMNS[name].kind
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
