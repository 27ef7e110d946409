"""The same stale training twice, uncorrected and corrected, side by side: what a correction is for, in two minutes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from trimtab.config.training import Train
from trimtab.errors import ConfigError, RunError
from trimtab.lab.cell import Cell, cell_state
from trimtab.lab.lab import cores
from trimtab.lab.results import done_result
from trimtab.lab.work import LabJob, run_jobs
from trimtab.records.files import disk_error
from trimtab.records.lock import Lock

DEMO_STEPS = 300
DEMO_CORRECTION = "k3-rs"
PLAIN = "uncorrected"
OnRunStep = Callable[[str, int, float | None], None]
"""Told the name of a run, its step and, where it was measured, its accuracy; a warm start is called that."""
WARM_START = "warm start"


@dataclass(frozen=True)
class DemoOutcome:
    """What became of one of the two runs."""

    name: str
    path: Path
    before: float
    best: float
    after: float


def demo_pair(seed: int = 0, steps: int = DEMO_STEPS) -> dict[str, Train]:
    """The two runs by name. They differ in the correction and in nothing else."""
    return {name: _config(rule, seed, steps) for name, rule in ((PLAIN, "off"), (DEMO_CORRECTION, DEMO_CORRECTION))}


def _config(rule: str, seed: int, steps: int) -> Train:
    return Train.from_settings(
        {
            "steps": steps,
            "seed": seed,
            "backend": "lockstep",
            "rollout": {"max_staleness": 8},
            "correction": rule,
            "advantage": {"kind": "grpo", "baseline": "all"},
            "evaluate": {"every": 10},
            "checkpoint": {"every": steps, "keep": 1},
            "record": {"rollouts": 0.1},
        }
    )


def run_demo(runs: dict[str, Train], path: Path, seen: OnRunStep) -> list[DemoOutcome]:
    """Run what is not done yet in folders of `path`, both at a time where there are cores for it."""
    folders = {name: path / name for name in runs}
    cells = {name: Cell("demo", name, config.seed, config) for name, config in runs.items()}
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(path, error) from error
    foreign = [folder for folder in folders.values() if folder.exists() and not (folder / "run.json").is_file()]
    if foreign:
        raise ConfigError(f"The demo needs {foreign[0]} for a run, got a folder that holds none. Choose another --out.")
    lock = Lock(path / "lock")
    try:
        todo = {name: cell for name, cell in cells.items() if cell_state(cell, folders[name]) != "done"}
        first = next(iter(todo.values()), None)
        if first is not None:  # once, before both could make the same one
            _work([LabJob(WARM_START, "warm start", _settings(first), path, path / "logs" / "warm-start.log")], seen)
        _work(
            [
                LabJob(name, "cell", _settings(cell), folders[name], path / "logs" / f"{name}.log")
                for name, cell in todo.items()
            ],
            seen,
        )
        return [_outcome(cell, folders[name]) for name, cell in cells.items()]
    finally:
        lock.release()


def _work(jobs: list[LabJob], seen: OnRunStep) -> None:
    with closing(run_jobs(jobs, cores(), lambda job, step, accuracy: seen(job.name, step, accuracy))) as ends:
        for each in ends:
            if each.error is not None:
                raise RunError(f"{each.job.name}: {each.error}")


def _settings(cell: Cell) -> dict[str, object]:
    return cell.config.model_dump(mode="json")


def _outcome(cell: Cell, path: Path) -> DemoOutcome:
    accuracies = [accuracy for _, accuracy in done_result(cell, path).accuracy]
    return DemoOutcome(cell.correction, path, accuracies[0], max(accuracies), accuracies[-1])
