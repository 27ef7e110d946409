"""A lab from its plan to lab.json: what is done stays, what is half or changed is run again, what fails is said and left."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from trimtab.errors import RecordError
from trimtab.lab.book import Book, Entry, done_entry, empty_book, failed_entry, read_book, write_book
from trimtab.lab.candidate import Candidate
from trimtab.lab.cell import Cell, cells, state
from trimtab.lab.scenario import CONTROL, UNCORRECTED, Scenario, scenario
from trimtab.lab.work import Ended, Job, ended
from trimtab.records.files import disk_error
from trimtab.records.lock import Lock

FEWEST_SEEDS = 3
"""Two runs that differ by one token can end at 0.2 and at 0.9: fewer say nothing."""


@runtime_checkable
class Display(Protocol):
    """What a user sees of a lab."""

    def begin(self, done: int, changed: int, cells: int) -> None:
        """Of so many cells some are done already, and some were run with other settings and will be run again."""

    def seen(self, name: str, step: int, accuracy: float | None) -> None:
        """A cell or warm start under way."""

    def ended(self, name: str, entry: Entry | None) -> None:
        """A cell or warm start (without entry) has ended."""


class Silent:
    """No display."""

    def begin(self, done: int, changed: int, cells: int) -> None:
        """Nothing."""

    def seen(self, name: str, step: int, accuracy: float | None) -> None:
        """Nothing."""

    def ended(self, name: str, entry: Entry | None) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Plan:
    """What is to be run."""

    scenarios: Sequence[Scenario]
    candidates: Sequence[Candidate]
    seeds: Sequence[int]
    steps: int
    base: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def with_control(self) -> list[Scenario]:
        """The scenarios, the control among them: without it a bad learning rate looks like an off-policy collapse.

        Asked for by name it is run with every correction; else uncorrected only, as on-policy most do nothing.
        """
        least = scenario(CONTROL).but(corrections=(UNCORRECTED,))
        return list({each.name: each for each in (least, *self.scenarios)}.values())

    def cells(self) -> list[Cell]:
        """Every cell."""
        return cells(self.with_control, self.candidates, self.seeds, self.base, self.steps)


def run(plan: Plan, path: Path, *, jobs: int | None = None, display: Display | None = None) -> Book:
    """Run what is not done yet, `jobs` cells at a time, and leave lab.json."""
    display, many = display or Silent(), jobs or cores()
    planned = plan.cells()
    try:
        (path / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, error) from error
    lock = Lock(path / "lock")
    try:
        meanings = {each.name: each.meaning for each in plan.with_control}
        book = _with_earlier(empty_book(planned, meanings, plan.base, plan.steps), path, planned)
        found = {cell.name: state(cell, path / "cells" / cell.name) for cell in planned}
        todo = [cell for cell in planned if found[cell.name] != "done"]
        done = [cell for cell in planned if found[cell.name] == "done"]
        book = _noted(book, [done_entry(cell, path / "cells" / cell.name) for cell in done])
        write_book(path, book)
        display.begin(len(done), list(found.values()).count("changed"), len(planned))
        _warm_up(todo, path, many, display)
        for entry in _entries(todo, path, many, display):
            book = _noted(book, [entry])
            write_book(path, book)
            display.ended(entry.name, next(each for each in book.entries if each.name == entry.name))
        return book
    finally:
        lock.release()


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _noted(book: Book, entries: Sequence[Entry]) -> Book:
    """With these cells, in place of what stood there of them; all verdicts anew, as a control may be among them."""
    new = {each.name: each for each in entries}
    return book.but(entries=(*(each for each in book.entries if each.name not in new), *entries)).judged()


def _with_earlier(book: Book, path: Path, planned: Sequence[Cell]) -> Book:
    """What an earlier plan with the same base and steps has left here stays in the tables, if nothing new takes its place."""
    try:
        earlier = read_book(path)
    except RecordError:
        return book
    if (earlier.base, earlier.steps, earlier.trimtab) != (book.base, book.steps, book.trimtab):
        return book
    names = {cell.name for cell in planned}
    kept = [each for each in earlier.entries if each.name not in names and (path / "cells" / each.name).is_dir()]
    return book.but(
        entries=tuple(kept),
        planned=len(planned) + len(kept),
        seeds=tuple(sorted({*book.seeds, *(each.seed for each in kept)})),
        scenarios=book.scenarios | {each.scenario: earlier.scenarios.get(each.scenario, "") for each in kept},
        corrections=book.corrections | {each.correction: earlier.corrections.get(each.correction, {}) for each in kept},
    )


def _warm_up(todo: Sequence[Cell], path: Path, many: int, display: Display) -> None:
    """Every warm start once, before two cells could make the same one."""
    needed = {cell.warm_start: cell for cell in todo if cell.warm_start is not None}
    jobs = [
        _job(cell, path, "warm start", f"warm start, seed {cell.seed}", f"warm-start--{key}")
        for key, cell in needed.items()
    ]
    with closing(ended(jobs, many, lambda job, step, accuracy: display.seen(job.name, step, accuracy))) as ends:
        for each in ends:
            display.ended(each.job.name, None)  # what went wrong with it, its cells will say


def _entries(todo: Sequence[Cell], path: Path, many: int, display: Display) -> Iterator[Entry]:
    by_name = {cell.name: cell for cell in todo}
    jobs = [_job(cell, path, "cell", cell.name, cell.name) for cell in todo]
    with closing(ended(jobs, many, lambda job, step, accuracy: display.seen(job.name, step, accuracy))) as ends:
        for each in ends:
            yield _entry(by_name[each.job.name], each)


def _entry(cell: Cell, end: Ended) -> Entry:
    if end.error is None and state(cell, end.job.path) == "done":
        return done_entry(cell, end.job.path)
    return failed_entry(cell, end.error or f"It did not run to the end. Its log is {end.job.log}.")


def _job(cell: Cell, path: Path, kind: Any, name: str, log: str) -> Job:
    settings = cell.config.model_dump(mode="json")
    return Job(name, kind, settings, path / "cells" / cell.name, path / "logs" / f"{log}.log")
