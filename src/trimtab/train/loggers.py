"""Further loggers beside metrics.jsonl, one thin adapter each. A logger that breaks stops nothing but itself."""

from __future__ import annotations

import importlib
import json
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, SupportsFloat, cast, runtime_checkable

from trimtab.errors import ConfigError, TrimtabError, UnknownNameError, nearest
from trimtab.installed import install_command
from trimtab.records.files import write_whole

MEMORY = "loggers.json"
"""File of the run directory with the id each service gave the run, so that a resumed run goes on there."""
_MLFLOW_BATCH = 100
_MLFLOW_LONGEST = 500


@runtime_checkable
class Logger(Protocol):
    """Something that takes the metrics of each step."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take the metrics of a step."""

    def close(self, status: str = "done") -> None:
        """Send what is left."""


@dataclass(frozen=True)
class Start:
    """What a logger is told when it is opened."""

    folder: Path
    """The run directory; its name is the run's name."""
    project: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    step: int = 0
    """First step to come; above 0 in a resumed run."""

    def remembered(self, name: str) -> str | None:
        """The id that service gave this run, if it did."""
        return self._memory().get(name)

    def remember(self, name: str, run: str) -> str:
        """Note the id that service gave this run."""
        memory = self._memory() | {name: run}
        write_whole(self.folder / MEMORY, json.dumps(memory, indent=2).encode() + b"\n")
        return run

    def _memory(self) -> dict[str, str]:
        with suppress(OSError, ValueError):
            return dict(json.loads((self.folder / MEMORY).read_bytes()))
        return {}


class TensorBoard:
    """Event files in the run directory's `tensorboard` folder."""

    def __init__(self, start: Start) -> None:
        _package("tensorboard")
        writer: Any = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        # what a run killed later had logged from this step on is hidden
        purge = start.step if start.step > 0 else None
        self._writer = writer(log_dir=str(start.folder / "tensorboard"), purge_step=purge)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One scalar per metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self, status: str = "done") -> None:
        """Close the event file."""
        self._writer.close()


class Wandb:
    """A Weights & Biases run."""

    def __init__(self, start: Start) -> None:
        wandb = _package("wandb")
        known = start.remembered("wandb") or start.remember("wandb", uuid.uuid4().hex[:12])
        self._run = wandb.init(
            project=start.project,
            name=start.folder.name,
            id=known,
            dir=str(start.folder),
            config=dict(start.settings),
            resume="allow",
        )
        # Its own step counter takes no step twice, which would lose what a resumed run makes anew.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row, with `step` as the axis of every chart."""
        self._run.log({**metrics, "step": step})

    def close(self, status: str = "done") -> None:
        """Finish the run; any status but done counts as failed there."""
        self._run.finish(exit_code=0 if status == "done" else 1)


class Trackio:
    """A Trackio run, found again by its name."""

    def __init__(self, start: Start) -> None:
        self._trackio = _package("trackio")
        known = start.remembered("trackio")
        self._trackio.init(
            project=start.project,
            name=known or start.remember("trackio", f"{start.folder.name}-{uuid.uuid4().hex[:6]}"),
            config=dict(start.settings),
            resume="allow",
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One row."""
        self._trackio.log(dict(metrics), step=step)

    def close(self, status: str = "done") -> None:
        """Finish the run."""
        self._trackio.finish()


class Mlflow:
    """An MLflow run in the experiment named as the project; settings are its parameters."""

    def __init__(self, start: Start) -> None:
        self._mlflow = _package("mlflow")
        self._mlflow.set_experiment(start.project)
        known = start.remembered("mlflow")
        if known is not None:
            self._mlflow.start_run(run_id=known)
            return
        run = self._mlflow.start_run(run_name=start.folder.name)
        start.remember("mlflow", str(run.info.run_id))
        parameters = list(_flat(start.settings).items())
        for first in range(0, len(parameters), _MLFLOW_BATCH):
            self._mlflow.log_params(dict(parameters[first : first + _MLFLOW_BATCH]))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """One value per metric, under a name MLflow allows."""
        self._mlflow.log_metrics({_allowed(name): value for name, value in metrics.items()}, step=step)

    def close(self, status: str = "done") -> None:
        """End the run."""
        self._mlflow.end_run("FINISHED" if status == "done" else "FAILED")


LOGGERS: dict[str, Callable[[Start], Logger]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "trackio": Trackio,
    "mlflow": Mlflow,
}


class Loggers:
    """All loggers of a run. One that raises is warned of once and dropped."""

    def __init__(self, loggers: Mapping[str, Logger], warn: Callable[[str], None]) -> None:
        self._loggers = dict(loggers)
        self._warn = warn
        self.dropped: dict[str, str] = {}
        """Why each dropped logger was dropped."""

    def log(self, step: int, metrics: Mapping[str, SupportsFloat]) -> None:
        """Hand the metrics of a step to every logger that still works."""
        values = {name: float(value) for name, value in metrics.items()}
        self._each(f"at step {step}", lambda logger: logger.log(step, values))

    def close(self, status: str = "done") -> None:
        """Close every logger that still works."""
        self._each("at the end", lambda logger: logger.close(status))
        self._loggers = {}

    def _each(self, when: str, call: Callable[[Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            try:
                call(logger)
            except Exception as error:
                del self._loggers[name]
                self.dropped[name] = f"{type(error).__name__}: {error}"
                self._warn(f"The logger {name} failed {when} and is dropped; the run goes on. {self.dropped[name]}")


def open_loggers(
    names: Sequence[str],
    *,
    folder: Path,
    project: str,
    warn: Callable[[str], None],
    settings: Mapping[str, Any] | None = None,
    step: int = 0,
) -> Loggers:
    """The named loggers, ready. One that cannot start is refused here, before the run has cost anything."""
    start = Start(folder, project, settings or {}, step)
    ready: dict[str, Logger] = {}
    try:
        for name in dict.fromkeys(names):
            ready[name] = _opened(name, start)
    except BaseException:
        Loggers(ready, warn).close("failed")
        raise
    return Loggers(ready, warn)


def _opened(name: str, start: Start) -> Logger:
    if name not in LOGGERS:
        raise UnknownNameError(f"There is no logger {name!r}. {nearest(name, LOGGERS)}")
    try:
        return LOGGERS[name](start)
    except TrimtabError:
        raise
    except Exception as error:
        raise ConfigError(
            f"The logger {name} cannot start: {type(error).__name__}: {error}. Mend that, or take it out of record.loggers."
        ) from error


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"The logger {name} needs its package, got: {error}. Install it: {install_command(name)}"
        ) from error


def _allowed(name: str) -> str:
    """MLflow takes letters, digits, underscores, dashes, periods, spaces and slashes."""
    return re.sub(r"[^\w.\- /]", "_", name)


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(cast("Mapping[str, Any]", value), f"{prefix}{name}.")
        else:
            flat[_allowed(f"{prefix}{name}")] = str(value)[:_MLFLOW_LONGEST]
    return flat
