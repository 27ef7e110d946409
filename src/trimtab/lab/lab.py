"""A lab from its plan to lab.json: what is done stays, what is half or changed is run again, what fails is said and left."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from trimtab.dialects.candidate import Candidate
from trimtab.errors import RecordError
from trimtab.lab.cell import Cell, cell_state, cells
from trimtab.lab.results import (
    CellResult,
    LabResults,
    done_result,
    empty_results,
    failed_result,
    read_results,
    write_results,
)
from trimtab.lab.scenario import CONTROL, UNCORRECTED, Scenario, check_needs, scenario
from trimtab.lab.work import JobEnd, LabJob, OnStep, run_jobs
from trimtab.records.files import disk_error
from trimtab.records.lock import Lock


@runtime_checkable
class LabDisplay(Protocol):
    """What a user sees of a lab."""

    def begin(self, done: int, changed: int, cells: int) -> None:
        """Of so many cells some are done already, and some were run with other settings and will be run again."""

    def step(self, name: str, step: int, accuracy: float | None) -> None:
        """A cell or warm start under way."""

    def end(self, name: str, entry: CellResult | None) -> None:
        """A cell or warm start (without entry) has ended."""


@dataclass(frozen=True)
class LabPlan:
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


@dataclass(frozen=True)
class CellList:
    """Cells to be run together, and what their tables say of them."""

    cells: Sequence[Cell]
    meanings: Mapping[str, str]
    """Of the scenarios, by name."""
    base: Mapping[str, Any]
    steps: int


def run_lab(plan: LabPlan, path: Path, *, jobs: int | None = None, display: LabDisplay | None = None) -> LabResults:
    """Run what is not done yet, `jobs` cells at a time, and leave lab.json."""
    check_needs(plan.with_control)
    meanings = {each.name: each.meaning for each in plan.with_control}
    return run_cells(CellList(plan.cells(), meanings, plan.base, plan.steps), path, jobs=jobs, display=display)


def run_cells(
    given: CellList,
    path: Path,
    *,
    jobs: int | None = None,
    display: LabDisplay | None = None,
    may_start: Callable[[], bool] = lambda: True,
) -> LabResults:
    """The same for any cells; once `may_start` says no, those under way are the last."""
    many, planned = jobs or cores(), given.cells
    try:
        (path / "cells").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, error) from error
    lock = Lock(path / "lock")
    try:
        results = _with_earlier(empty_results(planned, given.meanings, given.base, given.steps), path, planned)
        states = {cell.name: cell_state(cell, path / "cells" / cell.name) for cell in planned}
        todo = [cell for cell in planned if states[cell.name] != "done"]
        done = [cell for cell in planned if states[cell.name] == "done"]
        results = _with_results(results, [done_result(cell, path / "cells" / cell.name) for cell in done])
        write_results(path, results)
        if display is not None:
            display.begin(len(done), list(states.values()).count("changed"), len(planned))
        _warm_up(todo, path, many, display, may_start)
        for entry in _results(todo, path, many, display, may_start):
            results = _with_results(results, [entry])
            write_results(path, results)
            if display is not None:
                display.end(entry.name, next(each for each in results.entries if each.name == entry.name))
        return results
    finally:
        lock.release()


def cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _with_results(results: LabResults, entries: Sequence[CellResult]) -> LabResults:
    """With these cells, in place of what stood there of them; all verdicts anew, as a control may be among them."""
    new = {each.name: each for each in entries}
    return results.but(entries=(*(each for each in results.entries if each.name not in new), *entries)).with_verdicts()


def _with_earlier(results: LabResults, path: Path, planned: Sequence[Cell]) -> LabResults:
    """What an earlier plan with the same base and steps has left here stays in the tables, if nothing new takes its place."""
    try:
        earlier = read_results(path)
    except RecordError:
        return results
    if (earlier.base, earlier.steps, earlier.trimtab) != (results.base, results.steps, results.trimtab):
        return results
    names = {cell.name for cell in planned}
    kept = [each for each in earlier.entries if each.name not in names and (path / "cells" / each.name).is_dir()]
    return results.but(
        entries=tuple(kept),
        planned=len(planned) + len(kept),
        seeds=tuple(sorted({*results.seeds, *(each.seed for each in kept)})),
        scenarios=results.scenarios | {each.scenario: earlier.scenarios.get(each.scenario, "") for each in kept},
        corrections=results.corrections
        | {each.correction: earlier.corrections.get(each.correction, {}) for each in kept},
    )


def _warm_up(
    todo: Sequence[Cell], path: Path, many: int, display: LabDisplay | None, may_start: Callable[[], bool]
) -> None:
    """Every warm start once, before two cells could make the same one."""
    needed = {cell.warm_start: cell for cell in todo if cell.warm_start is not None}
    jobs = [
        _job(cell, path, "warm start", f"warm start, seed {cell.seed}", f"warm-start--{key}")
        for key, cell in needed.items()
    ]
    with closing(run_jobs(jobs, many, _seen(display), may_start=may_start)) as ends:
        for each in ends:
            if display is not None:
                display.end(each.job.name, None)  # what went wrong with it, its cells will say


def _seen(display: LabDisplay | None) -> OnStep:
    def seen(job: LabJob, step: int, accuracy: float | None) -> None:
        if display is not None:
            display.step(job.name, step, accuracy)

    return seen


def _results(
    todo: Sequence[Cell], path: Path, many: int, display: LabDisplay | None, may_start: Callable[[], bool]
) -> Iterator[CellResult]:
    by_name = {cell.name: cell for cell in todo}
    jobs = [_job(cell, path, "cell", cell.name, cell.name) for cell in todo]
    with closing(run_jobs(jobs, many, _seen(display), may_start=may_start)) as ends:
        for each in ends:
            yield _result(by_name[each.job.name], each)


def _result(cell: Cell, end: JobEnd) -> CellResult:
    if end.error is None and cell_state(cell, end.job.path) == "done":
        return done_result(cell, end.job.path)
    return failed_result(cell, end.error or f"It did not run to the end. Its log is {end.job.log}.")


def _job(cell: Cell, path: Path, kind: Any, name: str, log: str) -> LabJob:
    settings = cell.config.model_dump(mode="json")
    return LabJob(name, kind, settings, path / "cells" / cell.name, path / "logs" / f"{log}.log")
