"""The run directory: all that a training run leaves on disk, and what a resumed one takes up."""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false
from __future__ import annotations

import importlib.metadata
import re
import threading
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, SupportsFloat

import pyarrow as pa

from trimtab.config.base import excerpt
from trimtab.errors import RecordError
from trimtab.records.files import (
    TEMPORARY,
    append_line,
    cut_torn_line,
    disk_error,
    json_line,
    keep_lines,
    lines_of,
    make_folder,
    sync_file,
    sync_folder,
)
from trimtab.records.lock import Lock, is_held
from trimtab.records.rollouts import Rollouts
from trimtab.records.run_files import (
    check_no_links,
    check_unused,
    checkpoint_step,
    gaps_of,
    run_facts,
    run_settings,
    set_aside,
    settings_tree,
    write_facts,
    write_settings,
)
from trimtab.records.schema import SCHEMA, RolloutRow

_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class RunDirectory:
    """A run on disk. Made by `create`, `open` (both hold its lock until `close`) or `read`."""

    def __init__(self, path: Path, settings: dict[str, Any], lock: Lock | None) -> None:
        record = settings.get("record") or {}
        self.path = path
        self.settings = settings
        self.checkpoints = path / "checkpoints"
        self.report = path / "report.html"
        self.ending = "done"
        """The status that `with` leaves where nothing was raised."""
        self._lock = lock
        self._closed = False
        self._turn = threading.Lock()  # lines of two threads must not cross
        self._rollouts = Rollouts(path / "rollouts", int(record.get("every", 10)), float(record.get("rollouts", 1.0)))

    @classmethod
    def create(cls, path: str | Path, settings: Mapping[str, Any]) -> RunDirectory:
        """A new run, in a folder that is new, empty, or was left half-made by a run killed at its start."""
        path = Path(path)
        with _disk_errors(path):
            make_folder(path)
            check_unused(path)
            check_no_links(path)
        with _held_lock(path) as lock:
            check_unused(path)
            (path / "rollouts").mkdir(exist_ok=True)
            (path / "checkpoints").mkdir(exist_ok=True)
            write_settings(path, settings)
            write_facts(path, schema=SCHEMA, trimtab=trimtab_version(), created=_now(), status="running")
        return cls(path, run_settings(path), lock)

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """A run to be resumed. Lines a kill has torn are cut off."""
        path = Path(path)
        run_facts(path)
        check_no_links(path)
        with _held_lock(path) as lock:
            run = cls(path, run_settings(path), lock)
            write_facts(path, **(run_facts(path) | {"status": "running"}))
            torn = {name: cut_torn_line(path / name) for name in ("metrics.jsonl", "events.jsonl")}
            for leftover in [*path.glob(f"{TEMPORARY}*"), *path.glob(f"rollouts/{TEMPORARY}*")]:
                leftover.unlink()
            for name, size in torn.items():
                if size:
                    run.event("torn", f"The last line of {name} was cut off; {size} bytes of it went.", file=name)
        return run

    @classmethod
    def read(cls, path: str | Path) -> RunDirectory:
        """A run to be looked at only, finished or not."""
        path = Path(path)
        run_facts(path)
        return cls(path, run_settings(path), None)

    @property
    def facts(self) -> dict[str, Any]:
        """What run.json says: schema, trimtab, created, status."""
        return run_facts(self.path)

    @property
    def status(self) -> str:
        """running, what `close` was told, or interrupted: neither closed nor held by a process that lives."""
        status = str(self.facts["status"])
        return "interrupted" if status == "running" and not is_held(self.path / "lock") else status

    def log(self, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Add the metrics of a step. A value that is no finite number stands as the string NaN, Infinity or -Infinity."""
        if "step" in metrics:
            raise RecordError("Metrics need names other than step, got one called step. Rename it.")
        self._add("metrics.jsonl", {"step": int(step), **{name: float(value) for name, value in metrics.items()}})

    def metrics(self) -> list[dict[str, Any]]:
        """Every line of metrics, `step` first; NaN and infinities are floats again."""
        return [
            {name: _NUMBERS.get(value, value) if isinstance(value, str) else value for name, value in line.items()}
            for line in lines_of(self.path / "metrics.jsonl")
        ]

    def event(self, kind: str, message: str, **facts: Any) -> None:
        """Add something that happened. A fact that JSON has no form for is written as its text."""
        self._add("events.jsonl", {"time": _now(), "kind": kind, "message": message, **facts})

    def events(self) -> list[dict[str, Any]]:
        """Everything that happened, in order."""
        return lines_of(self.path / "events.jsonl")

    def rollouts(self, rows: Sequence[RolloutRow]) -> None:
        """Record rows: on disk after every `record.every` steps, at `flush` and at `close`; `record.rollouts` of the groups."""
        self._check_open()
        with self._turn, _disk_errors(self.path / "rollouts"):
            self._rollouts.add(rows)

    def flush(self) -> None:
        """Put rows, metrics and events on disk for good: before a checkpoint, as a run resumed from it makes none of them again."""
        self._check_open()
        with self._turn, _disk_errors(self.path / "rollouts"):
            self._rollouts.flush()
        with self._turn, _disk_errors(self.path / "metrics.jsonl"):
            for name in ("metrics.jsonl", "events.jsonl"):
                sync_file(self.path / name)
            sync_folder(self.path)

    @property
    def rows(self) -> Counter[int]:
        """How many rollouts are recorded of each step; of a run opened again, known once it was rewound."""
        return self._rollouts.counts

    def gaps(self, steps: Iterable[int], *, rows: int | None, per_step: int | None) -> list[str]:
        """What it should hold of these steps and does not, a sentence for each sort of record; see `run_files.gaps_of`."""
        logged = [int(line["step"]) for line in self.metrics()]
        return gaps_of(logged, self.rows, steps, rows=rows, per_step=per_step)

    def rollout_table(self, steps: Collection[int] | None = None, columns: Sequence[str] | None = None) -> pa.Table:
        """The recorded rows of all or some steps, in the order they were recorded. `schema.rows_from` makes objects of them."""
        if self._lock is not None and not self._closed:
            self.flush()
        return self._rollouts.table(steps, columns)

    def rewind(self, step: int) -> None:
        """Forget `step` and all after it, as a run resumed from the checkpoint at `step` makes them anew.

        Checkpoints of later steps, which were damaged or passed over, are set aside under another name.
        """
        self._check_open()
        self._check_steps()
        with self._turn, _disk_errors(self.path):
            lines = keep_lines(self.path / "metrics.jsonl", lambda line: line["step"] < step)
            rows = self._rollouts.rewind(step)
            aside = [set_aside(path) for path in sorted(self.checkpoints.glob("*")) if checkpoint_step(path) > step]
        message = f"Back to step {step}: {lines} lines of metrics and {rows} rollouts of later steps went."
        self.event("rewind", message, step=step, metrics=lines, rollouts=rows, set_aside=aside)

    def resettle(self, settings: Mapping[str, Any]) -> None:
        """Take other settings, such as more steps, for this and every later session."""
        self._check_open()
        if settings_tree(settings) != self.settings:
            write_settings(self.path, settings)
            self.settings = run_settings(self.path)

    def remember(self, **facts: Any) -> None:
        """Keep further facts in run.json."""
        self._check_open()
        write_facts(self.path, **(run_facts(self.path) | facts))

    def discard(self) -> None:
        """Undo `create`: another run can be made there. The lock's file stays, see `Lock.release`."""
        if self._closed or self._lock is None:
            return
        self._closed = True
        with suppress(OSError):  # first run.json: whatever ends this in between, there is no run
            (self.path / "run.json").unlink()
            (self.path / "config.yaml").unlink()
            (self.path / "rollouts").rmdir()
            (self.path / "checkpoints").rmdir()
        self._lock.release()

    def close(self, status: str = "done") -> None:
        """Write what is left, note the status, let others write. A second call does nothing."""
        if self._closed or self._lock is None:
            return
        try:
            self.flush()
            write_facts(self.path, **(run_facts(self.path) | {"status": status, "ended": _now()}))
        finally:
            self._closed = True
            self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.close(
                self.ending if error is None else "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            )
        except RecordError:
            if error is None:  # otherwise what went wrong first says more
                raise

    def _add(self, name: str, line: Mapping[str, Any]) -> None:
        self._check_open()
        with self._turn:
            append_line(self.path / name, json_line(line))

    def _check_steps(self) -> None:
        """An error where a line of metrics does not say of which step it is: what to keep of such a file is not guessed."""
        path = self.path / "metrics.jsonl"
        for number, line in enumerate(lines_of(path), 1):
            step = line.get("step")
            if not isinstance(step, int) or isinstance(step, bool):
                raise RecordError(
                    f"{path} needs a whole number as step in each line, got {excerpt(step)} in line {number}. Delete that line."
                )

    def _check_open(self) -> None:
        if self._lock is None:
            raise RecordError(f"{self.path} needs to be opened to be written, got opened to be read. Use `open`.")
        if self._closed:
            raise RecordError(f"{self.path} needs to be open, got closed. Open it again.")


@contextmanager
def _disk_errors(path: Path) -> Generator[None]:
    """An error of the system inside it, said in our words."""
    try:
        yield
    except OSError as error:
        raise disk_error(path, error) from error


@contextmanager
def _held_lock(path: Path) -> Generator[Lock]:
    """The lock of a run, held on where nothing is raised inside."""
    lock = Lock(path / "lock")
    try:
        with _disk_errors(path):
            yield lock
    except BaseException:
        lock.release()
        raise


def free_name(root: Path, name: str) -> Path:
    """A new empty folder `root/name-0001`, one number above the highest; made at once, so that no other run gets it."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"
    try:
        make_folder(root)
        taken = [re.fullmatch(re.escape(stem) + r"-(\d+)", path.name) for path in root.iterdir()]
        number = max((int(match[1]) for match in taken if match), default=0)
        while True:
            number += 1
            path = root / f"{stem}-{number:04d}"
            with suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise disk_error(root, error) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def trimtab_version() -> str:
    """The version of this package, as run directories keep it."""
    try:
        return importlib.metadata.version("trimtab")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
