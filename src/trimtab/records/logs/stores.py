"""Logs that are stores: trackio's database, MLflow's folders, TensorBoard's event files."""

from __future__ import annotations

import importlib
import json
import os
import sqlite3
from array import array
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trimtab.config.safe_yaml import opened
from trimtab.errors import RecordError
from trimtab.installed import install_command
from trimtab.records.logs.logged_curves import LONGEST_LINE, Log, LoggedCurve, LoggedRows, flat

SQLITE = b"SQLite format 3\0"
MOST_INSTRUCTIONS = 20_000
"""Thousands of instructions of the database's machine: hours of a run, not a query without end."""
MOST_RUNS, MOST_CURVES = 200, 20_000


def trackio_logs(path: Path) -> list[Log]:
    """Every run of a project's database; nothing is written and no lock is taken."""
    with opened(path):  # an ordinary file
        pass
    address = f"file:{quote(os.path.abspath(path))}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as base:
            left = MOST_INSTRUCTIONS

            def count() -> int:
                nonlocal left
                left -= 1
                return left < 0

            base.set_progress_handler(count, 1_000_000)
            tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "metrics" not in tables:
                return []
            settings = _trackio_settings(base) if "configs" in tables else {}
            runs: dict[str, LoggedRows] = {}
            for run, step, text in base.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id"):
                row = _json(text)
                if isinstance(row, dict) and isinstance(step, int) and len(runs) < MOST_RUNS:
                    runs.setdefault(str(run), LoggedRows()).add(step, dict(flat(row)))
    except (sqlite3.Error, OverflowError) as error:
        raise RecordError(f"{path} needs to be trackio's database, got one that cannot be read: {error}.") from None
    return [Log(path, "trackio", rows.curves(), settings.get(run, {}), name=run) for run, rows in runs.items()]


def _trackio_settings(base: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    found = {str(run): _json(text) for run, text in base.execute("SELECT run_name, config FROM configs")}
    return {run: value for run, value in found.items() if isinstance(value, dict)}


def _json(text: object) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(text) if isinstance(text, (str, bytes)) and len(text) <= LONGEST_LINE else None
    return None


def mlflow_logs(path: Path) -> list[Log]:
    """Every run below a folder of MLflow's file store: a file per metric, `milliseconds value step` on each line."""
    runs = [path] if (path / "metrics").is_dir() else []
    runs += [each.parent for pattern in ("*/metrics", "*/*/metrics") for each in sorted(path.glob(pattern))]
    found = [_mlflow_log(run) for run in islice(dict.fromkeys(runs), MOST_RUNS)]
    return [log for log in found if log.curves]


def _mlflow_log(run: Path) -> Log:
    curves: dict[str, LoggedCurve] = {}
    for file in islice(_files(run / "metrics"), MOST_CURVES):
        curve = LoggedCurve(array("q"), array("d"))
        with suppress(OSError, ValueError, OverflowError), opened(file) as lines:
            while line := lines.readline(1000):
                _, value, step = line.split()[:3]
                curve.steps.append(int(step))
                curve.values.append(float(value))
        if len(curve.values) == len(curve.steps) and curve.values:
            curves[file.relative_to(run / "metrics").as_posix()] = curve
    settings: dict[str, Any] = {}
    for file in islice(_files(run / "params"), MOST_CURVES):
        with suppress(OSError), opened(file) as lines:
            settings[file.relative_to(run / "params").as_posix()] = lines.read(10_000).decode(errors="replace").strip()
    return Log(run, "MLflow", curves, settings, name=run.name)


def _files(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.is_file()) if folder.is_dir() else []


def tensorboard_log(path: Path) -> Log:
    """All scalars of a folder with event files, none of them left out."""
    try:
        module = importlib.import_module("tensorboard.backend.event_processing.event_accumulator")
    except ModuleNotFoundError as error:
        raise RecordError(
            f"{path} needs tensorboard to be read. Install it: {install_command('tensorboard')}"
        ) from error
    events: Any = module.EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    curves: dict[str, LoggedCurve] = {}
    for name in islice(events.Tags()["scalars"], MOST_CURVES):
        rows = events.Scalars(name)
        curves[str(name)] = LoggedCurve(array("q", (row.step for row in rows)), array("d", (row.value for row in rows)))
    return Log(path, "TensorBoard", curves)
