"""A folder that a run is writing to, looked at again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from trimtab.errors import RecordError
from trimtab.records.dumps.jsonl import last_line_end
from trimtab.records.dumps.loading import batch_of, readers_of
from trimtab.records.dumps.reader import DumpFile, DumpReader
from trimtab.records.saved import SavedBatch, part_of

Pair = tuple[DumpFile, DumpReader]


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def follow(
    directory: Path,
    framework: str | None = None,
    columns: Mapping[str, str] | None = None,
    *,
    every: float = 2.0,
    wait: Callable[[float], bool] = _sleep,
    tell: Callable[[str], None] | None = None,
) -> Iterator[SavedBatch]:
    """What is new in a folder or run directory, a batch at a time: files that appear, lines that files of lines grow by.

    It looks every `every` seconds; `wait` waits that long and says whether to end, as `threading.Event.wait` does. A file that is
    no file of lines is read once its size has stayed the same between two looks. `tell` hears what cannot be read.
    """
    watch = _Watch(directory, framework, columns, tell or (lambda _: None))
    while True:
        yield from watch.look()
        if wait(every):
            return


class _Watch:
    """What has been given of each file so far."""

    def __init__(
        self, directory: Path, framework: str | None, columns: Mapping[str, str] | None, tell: Callable[[str], None]
    ) -> None:
        self._asked = directory, framework, columns
        self._tell = tell
        self._told: set[str] = set()
        self._sizes: dict[Path, int] = {}
        self._given: dict[Path, int] = {}

    def look(self) -> Iterator[SavedBatch]:
        refused: list[str] = []
        try:
            found = list(readers_of(*self._asked, refused))
        except RecordError as error:  # nothing yet, or a file that is being written
            found, refused = [], [str(error)]
        for file, reader in found:
            try:
                yield from self._news(file, reader)
            except RecordError as error:
                refused.append(str(error))
        for words in refused:
            if words not in self._told:
                self._told.add(words)
                self._tell(words)

    def _news(self, file: DumpFile, reader: DumpReader) -> Iterator[SavedBatch]:
        if file.kind == "jsonl" and not file.compressed:
            start = self._given.get(file.path, 0)
            end = last_line_end(file.path, start)
            self._given[file.path] = end
            if end > start:
                yield batch_of([(DumpFile(file.path, start, end), reader)])
            return
        size = _size(file)
        before, self._sizes[file.path] = self._sizes.get(file.path), size
        if before != size or self._given.get(file.path) == size:
            return
        rows = self._given.get(file.path / "rows", 0)
        self._given[file.path] = size
        batch = batch_of([(file, reader)])
        self._given[file.path / "rows"] = len(batch)
        if file.kind != "run":  # another file of that name
            yield batch
        elif len(batch) > rows:
            yield part_of(batch, np.arange(rows, len(batch)))


def _size(file: DumpFile) -> int:
    if file.kind != "run":
        return file.path.stat().st_size
    return sum(path.stat().st_size for path in (file.path / "rollouts").glob("step-*.parquet"))
