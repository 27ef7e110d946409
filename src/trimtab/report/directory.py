"""From a run directory to its report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.records.files import write_whole
from trimtab.records.run import RunDirectory
from trimtab.report.page import html
from trimtab.report.run import Run
from trimtab.report.tokens import MOST_ROWS, MOST_TOKENS


def write(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run directory, finished or not; whole or not at all. Where it went: `report.html` in it, or `out`."""
    directory = RunDirectory.read(path)
    where = directory.report if out is None else Path(out)
    write_whole(where, html(read(path)).encode("utf-8", "replace"))
    return where


def read(path: str | Path) -> Run:
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


def steps_to_read(recorded: NDArray[np.int64], metrics: Sequence[Mapping[str, Any]]) -> NDArray[np.int64] | None:
    """Which steps' rollouts to read: None for all; otherwise evenly spread, with the first, the last and that of largest mismatch."""
    lengths = [line["rollout/length"] for line in metrics if np.isfinite(line.get("rollout/length", np.nan))]
    length = max(1.0, float(np.mean(lengths))) if lengths else 1.0
    most = min(MOST_ROWS, MOST_TOKENS / length)
    if len(recorded) <= most:
        return None
    known = np.unique(recorded)
    stride = int(np.ceil(len(recorded) / most))
    drift = {line["step"]: line["drift/k3"] for line in metrics if np.isfinite(line.get("drift/k3", np.nan))}
    worst = [
        max((step for step in known.tolist() if step in drift), key=lambda step: drift[step], default=int(known[0]))
    ]
    return np.unique(np.concatenate([known[::stride], known[-1:], np.array(worst)]))


def _piece(path: Path) -> Callable[[int], str] | None:
    """From token id to text by the newest tokenizer the run keeps; None without one, or without the package that reads it."""
    found = sorted(path.rglob("tokenizer.json"))
    if not found:
        return None
    try:
        from tokenizers import Tokenizer  # an extra: a report can do without it
    except ImportError:
        return None
    tokenizer = Tokenizer.from_file(str(found[-1]))
    return lambda token: tokenizer.decode([token], skip_special_tokens=False)
