"""Worker processes: each does one job, with one thread, and dies with its lab.

The processes come from a fork server that has loaded torch once; a job then starts at once instead of after seconds.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import Thread
from typing import Any, Literal

from trimtab.errors import ConfigWarning, RunError, TrimtabError
from trimtab.records.scratch import claim_scratch

GRACE = 10.0
"""Seconds a worker has to end after it was asked to."""
_UNKNOWN = 255
"""What multiprocessing says of a process whose fork server is gone."""
_ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TRANSFORMERS_VERBOSITY": "error"}


@dataclass(frozen=True)
class LabJob:
    """A training run, or only its warm start."""

    name: str
    kind: Literal["warm start", "cell"]
    settings: dict[str, Any]
    path: Path
    log: Path


@dataclass(frozen=True)
class JobEnd:
    """How a job ended."""

    job: LabJob
    error: str | None
    """None: well."""


OnStep = Callable[[LabJob, int, float | None], None]
"""Told a running job, its step and, where it was measured, its accuracy."""


@dataclass(eq=False)
class _Running:
    job: LabJob
    process: Any
    line: Connection
    error: str | None = None


def run_jobs(
    jobs: Sequence[LabJob],
    many: int,
    seen: OnStep = lambda job, step, accuracy: None,
    *,
    may_start: Callable[[], bool] = lambda: True,
) -> Generator[JobEnd]:
    """Each job as it ends, `many` at a time; once `may_start` says no, those under way are the last.

    Whoever stops listening, for whatever reason, leaves no process behind.
    """
    context, waiting = _context(), deque(jobs)
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < many and may_start():
                running.append(_start(context, waiting.popleft()))
            if not running:
                return
            wait([part for each in running for part in (each.line, each.process.sentinel) if not _is_closed(part)])
            for each in running:
                _listen(each, seen)
            for each in [each for each in running if not each.process.is_alive()]:
                _listen(each, seen)
                running.remove(each)
                yield _end(each)
    finally:
        _stop(running)


def _context() -> Any:
    claim_scratch()
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["trimtab.train.loop", __name__])
    return context


def _start(context: Any, job: LabJob, tries: int = 2) -> _Running:
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(job, theirs), name=job.name)
    try:
        with _environment(dict.fromkeys(_ONE_THREAD, "1") | _QUIET):
            process.start()
    except (EOFError, OSError) as error:
        for end in (ours, theirs):
            end.close()
        if tries > 1:  # the fork server was killed; starting once more begins another
            return _start(context, job, tries - 1)
        raise RunError(
            f"The lab needs to start processes, got {type(error).__name__} from the one that forks them: {error}. "
            "It may have been killed, for want of memory: see dmesg, lower --jobs. The same command goes on from there."
        ) from error
    theirs.close()
    return _Running(job, process, ours)


def _is_closed(part: object) -> bool:
    return isinstance(part, Connection) and part.closed


def _listen(each: _Running, seen: OnStep) -> None:
    """Take in what a worker has said."""
    if each.line.closed:
        return
    try:
        while each.line.poll():
            word, *told = each.line.recv()
            if word == "step":
                seen(each.job, *told)
            else:
                each.error = str(told[0])
    except (EOFError, OSError):
        each.line.close()


def _end(each: _Running) -> JobEnd:
    code = each.process.exitcode
    each.process.join()
    each.line.close()
    error = each.error
    if code and error is None:
        died = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        died += ", or the one that forks such processes was killed" if code == _UNKNOWN else ""
        error = f"The process {died}. Its log is {each.job.log}."
    return JobEnd(each.job, error)


def _stop(running: Sequence[_Running]) -> None:
    for each in running:
        each.process.terminate()
    for each in running:
        each.process.join(GRACE)
        if each.process.is_alive():
            each.process.kill()
            each.process.join()
        each.line.close()


@contextmanager
def _environment(values: dict[str, str]) -> Generator[None]:
    """For processes started inside; the fork server keeps what it was started with."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _work(job: LabJob, line: Connection) -> None:
    """In the worker."""
    _follow_parent()
    job.log.parent.mkdir(parents=True, exist_ok=True)
    with job.log.open("w") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    try:
        _DO[job.kind](job, _Line(line))
    except TrimtabError as error:
        traceback.print_exc()
        line.send(("error", str(error)))
        sys.exit(1)
    except Exception as error:
        traceback.print_exc()
        line.send(("error", f"{type(error).__name__}: {error}"))
        sys.exit(1)


def _follow_parent() -> None:
    """Die with the lab, however it dies."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    Thread(target=follow, daemon=True).start()


class _Line:
    """A run's display: its steps, sent to the lab."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def warm_start(self, step: int, accuracy: float | None) -> None:
        """The policy is being taught."""
        self._tell(step, accuracy)

    def begin(self, path: Path, step: int) -> None:
        """Nothing to tell."""

    def step(self, step: int, metrics: dict[str, float]) -> None:
        """A step is done."""
        self._tell(step, metrics.get("eval/accuracy"))

    def note(self, message: str) -> None:
        """The run directory keeps it."""

    def _tell(self, step: int, accuracy: float | None) -> None:
        try:
            self._line.send(("step", step, accuracy))
        except OSError:  # the lab has given this job up: what goes on here would be in the way of its next try
            os._exit(1)


def _cell(job: LabJob, line: _Line) -> None:
    from trimtab.config.training import Train
    from trimtab.train.loop import train

    warnings.simplefilter("ignore", ConfigWarning)
    # What is there is half, or of other settings. Only now, so that a lab stopped early loses little.
    shutil.rmtree(job.path, ignore_errors=True)
    result = train(Train.from_settings(job.settings), job.path, display=line)
    if result.stopped:
        sys.exit(128 + signal.SIGTERM)


def _warm_start(job: LabJob, line: _Line) -> None:
    import torch

    from trimtab.config.training import Train
    from trimtab.train.build import longest, pretrained_of
    from trimtab.train.tasks import source

    warnings.simplefilter("ignore", ConfigWarning)
    config = Train.from_settings(job.settings)
    torch.set_num_threads(config.threads)
    task = source(config.task, config.seed)
    pretrained_of(config, task, longest(config, task), line)


_DO: dict[str, Callable[[LabJob, _Line], None]] = {"cell": _cell, "warm start": _warm_start}
