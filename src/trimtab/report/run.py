"""What a report is made from: the settings, metrics, events and rollouts of one run, read from its directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.errors import RecordError
from trimtab.records.run import RunDirectory
from trimtab.report.series import Series

EMPTY = Series.of(())
FIRST_STEP = 1
"""Records count steps from 0; people count them from 1, and so does all that a report shows."""
MOST_TOKENS = 4_000_000
MOST_ROWS = 20_000
"""What is read of a large run's rollouts, at most."""


@dataclass(frozen=True, eq=False)
class Run:
    """One training run, read."""

    settings: Mapping[str, Any]
    """The resolved `Train` configuration."""
    metrics: Sequence[Mapping[str, Any]]
    """One mapping per step: `step` from 0, `time` in seconds, and numbers by metric name. Any may be missing."""
    events: Sequence[Mapping[str, Any]] = ()
    """`kind`, `message`, `step` (how many were done) and `time` of what happened beside the steps."""
    rollouts: pa.Table | None = None
    """One row per response; `step` from 0."""
    name: str = "run"
    status: str | None = None
    """running, done, failed, interrupted; None where it is not known."""
    piece: Callable[[int], str] | None = None
    """The text of a token id, where the run keeps its tokenizer."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of run.json: when it was made, by which version, and digests of its weights, rows and rewards' code (`world`)."""
    path: Path | None = None
    """Its directory."""

    @cached_property
    def _series(self) -> Mapping[str, Series]:
        pairs: dict[str, list[tuple[int, float | int]]] = {}
        for line in self.metrics:
            step = line.get("step")
            if not isinstance(step, int):
                continue
            for name, value in line.items():
                if isinstance(value, (int, float)) and name != "step":
                    pairs.setdefault(name, []).append((step + FIRST_STEP, value))
        return {name: Series.of(values) for name, values in pairs.items()}

    def series(self, name: str) -> Series:
        """A metric over the steps, counted from 1; empty where the run does not have it."""
        return self._series.get(name, EMPTY)

    @property
    def names(self) -> list[str]:
        """The metrics the run has."""
        return sorted(self._series)

    @cached_property
    def span(self) -> tuple[int, int]:
        """First and last step with any metric; (0, 0) without one."""
        steps = [series.steps for series in self._series.values() if len(series)]
        return (min(int(s[0]) for s in steps), max(int(s[-1]) for s in steps)) if steps else (0, 0)

    @property
    def count(self) -> int:
        """How many steps have metrics."""
        return len({str(line.get("step")) for line in self.metrics})

    def setting(self, path: str, default: Any = None) -> Any:
        """A setting by dotted path, `default` where it is absent or null."""
        place: object = self.settings
        for part in path.split("."):
            place = cast("Mapping[str, object]", place).get(part) if isinstance(place, Mapping) else None
        return default if place is None else place


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
        facts=directory.facts,
        path=Path(path).resolve(),
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
    for checkpoint in sorted(path.glob("checkpoints/step-*"), reverse=True):
        file = checkpoint / "model" / "tokenizer.json"
        if not file.is_file():  # a pipe would keep its reader waiting
            continue
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except (
            Exception
        ):  # removed since, damaged, or of a kind that has no such file; the package raises nothing narrower
            continue
        return lambda token: tokenizer.decode([token], skip_special_tokens=False) if 0 <= token < 2**32 else "?"
    return None


def settings_by_path(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Leaves by dotted path, items by their place, as they are typed: correction.gates.0.upper."""
    if isinstance(value, Mapping) and value:
        for key, inner in cast("Mapping[object, object]", value).items():
            yield from settings_by_path(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(
        isinstance(inner, (Mapping, list, tuple)) for inner in cast("Sequence[object]", value)
    ):
        for place, inner in enumerate(cast("Sequence[object]", value)):
            yield from settings_by_path(inner, f"{path}.{place}")
    else:
        yield path, "null" if value is None else value
