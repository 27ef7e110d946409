"""From run directories to what a report is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import RecordError
from trimtab.records.run import RunDirectory
from trimtab.report.run import FIRST_STEP, Run
from trimtab.report.tokens import MOST_ROWS, MOST_TOKENS


def read_run(path: str | Path) -> Run:
    """A run directory as a report needs it; of a large run, the rollouts of steps spread evenly over it."""
    directory = RunDirectory.read(path)
    metrics = directory.metrics()
    recorded = directory.rollout_table(columns=["step"]).column("step").to_numpy()
    steps = steps_to_read(recorded, metrics)
    return Run(
        settings=directory.settings,
        metrics=metrics,
        events=directory.events(),
        rollouts=directory.rollout_table(steps=None if steps is None else steps.tolist()),
        name=Path(path).resolve().name,
        status=directory.status,
        piece=_piece(Path(path)),
    )


def read_runs(paths: Sequence[str | Path]) -> list[Run]:
    """The runs, each called by its folder, or by its whole path where two folders are called the same."""
    runs = [read_run(path) for path in paths]
    names = [run.name for run in runs]
    told = [run.name if names.count(run.name) == 1 else str(path) for run, path in zip(runs, paths, strict=True)]
    if len(set(told)) < len(told):
        raise RecordError(
            f"A comparison needs different runs, got {', '.join(told)}. Leave out what stands there twice."
        )
    return [replace(run, name=name) for run, name in zip(runs, told, strict=True)]


def steps_to_read(recorded: NDArray[np.int64], metrics: Sequence[Mapping[str, Any]]) -> NDArray[np.int64] | None:
    """Which steps' rollouts to read: None for all; otherwise evenly spread, with the first, the last and that of largest mismatch."""
    lengths = list(_metric_by_step(metrics, "rollout/length").values())
    length = max(1.0, float(np.mean(lengths))) if lengths else 1.0
    most = min(MOST_ROWS, MOST_TOKENS / length)
    if len(recorded) <= most:
        return None
    known = np.unique(recorded)
    stride = int(np.ceil(len(recorded) / most))
    drift = _metric_by_step(metrics, "drift/k3")
    worst = [
        max((step for step in known.tolist() if step in drift), key=lambda step: drift[step], default=int(known[0]))
    ]
    return np.unique(np.concatenate([known[::stride], known[-1:], np.array(worst)]))


def _metric_by_step(metrics: Sequence[Mapping[str, Any]], name: str) -> dict[int, float]:
    """A metric by step as it is recorded, where both are numbers."""
    series = Run(settings={}, metrics=metrics).series(name).finite
    return dict(zip((series.steps - FIRST_STEP).tolist(), series.values.tolist(), strict=True))


def _piece(path: Path) -> Callable[[int], str] | None:
    """From token id to text by the newest tokenizer the run keeps; None without one, or without the package that reads it."""
    try:
        from tokenizers import Tokenizer  # an extra: a report can do without it
    except ImportError:
        return None
    # Checkpoints with their final names only, and not one level deeper: a run that goes on makes and removes others meanwhile.
    for found in sorted(path.glob("checkpoints/step-*"), reverse=True):
        try:
            tokenizer = Tokenizer.from_file(str(found / "model" / "tokenizer.json"))
        except (
            Exception
        ):  # removed since, damaged, or of a kind that has no such file; the package raises nothing narrower
            continue
        return lambda token: tokenizer.decode([token], skip_special_tokens=False) if 0 <= token < 2**32 else "?"
    return None
