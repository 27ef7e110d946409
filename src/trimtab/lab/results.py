"""lab.json: every cell's curves, numbers and verdict. All tables, charts and pages are made from it alone."""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from trimtab.config.base import Config
from trimtab.config.safe_yaml import json_data, opened
from trimtab.errors import ConfigError, RecordError
from trimtab.lab.cell import Cell, CellPairing, cell_pairing
from trimtab.lab.scenario import CONTROL, UNCORRECTED
from trimtab.lab.verdict import FORMER, CellVerdict, LabWord, cell_verdict, starved_share
from trimtab.records.files import write_whole
from trimtab.records.run import RunDirectory, trimtab_version
from trimtab.report.series import Series

FORMAT = 1
POINTS = 80
"""Most points a curve keeps."""
Gathered = Literal["mean", "max"]

CURVES: dict[str, tuple[str, Gathered]] = {
    "mismatch": ("drift/k3", "max"),
    "approx_kl": ("policy/k3", "max"),
    "grad_norm": ("train/grad_norm", "max"),
    "kept": ("kept_fraction", "mean"),
    "net_advantage": ("selection/net_advantage", "mean"),
    "kept_right": ("selection/kept_given_right", "mean"),
    "kept_wrong": ("selection/kept_given_wrong", "mean"),
    "ess": ("weight/ess", "mean"),
    "entropy": ("policy/entropy", "mean"),
    "clip_high": ("policy/clip_high", "max"),
    "clip_low": ("policy/clip_low", "max"),
}
"""Name here, metric, and how neighbouring steps become one point: jumps must not be averaged away."""
_GATHER: dict[Gathered, Callable[..., Any]] = {"mean": np.mean, "max": np.max}


class BinnedCurve(Config):
    """A metric over the steps, `every` steps to a point."""

    every: int = Field(description="Steps per point.")
    values: tuple[float | None, ...] = Field(description="None where no step had a number.")

    def series(self) -> Series:
        """The points at the last step of each."""
        pairs = [((place + 1) * self.every, value) for place, value in enumerate(self.values)]
        return Series.of((step, math.nan if value is None else value) for step, value in pairs)


class LabVerdict(Config):
    """A verdict, as it is written down."""

    word: Annotated[LabWord, BeforeValidator(lambda word: FORMER.get(str(word), word))] = Field(
        description="In one word."
    )
    reason: str = Field(description="Why.")
    start: float = Field(description="Held-out accuracy before the first step.")
    best: float = Field(description="The highest.")
    last: float = Field(description="The last.")
    late_low: float = Field(description="The lowest of the last third.")
    fell: tuple[int, int] | None = Field(default=None, description="Evaluations between which it fell.")


class CellResult(Config):
    """One cell."""

    scenario: str = Field(description="Its scenario.")
    correction: str = Field(description="Its correction, as tables call it.")
    seed: int = Field(description="Of warm start and run.")
    name: str = Field(description="Folder under cells/.")
    fingerprint: str = Field(description="Of settings and version.")
    status: Literal["done", "failed"] = Field(description="Whether it ran to the end.")
    message: str | None = Field(default=None, description="Why it did not.")
    steps: int = Field(default=0, description="Steps done.")
    seconds: float = Field(default=0.0, description="Of the steps, evaluations not counted.")
    ran: tuple[datetime, datetime] | None = Field(default=None, description="From when to when.")
    problems: int = Field(default=0, description="Held-out problems.")
    starved: float = Field(default=0.0, description="Share of steps that kept next to nothing.")
    accuracy: tuple[tuple[int, float], ...] = Field(default=(), description="Steps done and held-out accuracy.")
    curves: dict[str, BinnedCurve] = Field(default={}, description="Metrics over the steps.")
    medians: dict[str, float] = Field(default={}, description="Median of each over all steps.")
    most: dict[str, float] = Field(default={}, description="Greatest of each over all steps.")
    pairing: CellPairing | None = Field(default=None, description="What it shares with its seed in other arms.")
    verdict: LabVerdict | None = Field(default=None, description="None for a cell that failed.")

    @property
    def evaluated(self) -> Series:
        """Held-out accuracy."""
        return Series.of(self.accuracy)

    @property
    def word(self) -> LabWord:
        """The verdict in one word."""
        return "failed" if self.verdict is None else self.verdict.word

    @property
    def last(self) -> float:
        """The last accuracy; a cell that failed stands under all others."""
        return -1.0 if self.verdict is None else self.verdict.last


class LabResults(Config):
    """A whole lab."""

    format: int = Field(default=FORMAT, description="Raised when a reader of before could misread it.")
    trimtab: str = Field(description="Version that wrote it.")
    steps: int = Field(description="Steps of every cell.")
    seeds: tuple[int, ...] = Field(description="Every seed.")
    base: dict[str, Any] = Field(description="Settings all cells share.")
    scenarios: dict[str, str] = Field(description="Name and meaning.")
    corrections: dict[str, dict[str, Any]] = Field(description="Name and settings.")
    planned: int = Field(description="Cells of the plan.")
    machine: str = Field(default="", description="What the last cells were run on.")
    entries: tuple[CellResult, ...] = Field(default=(), description="Cells that have ended.")

    def of(self, scenario: str) -> list[CellResult]:
        """The cells of a scenario."""
        return [entry for entry in self.entries if entry.scenario == scenario]

    def cells(self, scenario: str, correction: str) -> list[CellResult]:
        """The seeds of one correction in one scenario, in order."""
        return sorted((each for each in self.of(scenario) if each.correction == correction), key=lambda each: each.seed)

    @property
    def controls(self) -> list[CellResult]:
        """The uncorrected on-policy runs, which all others are held against."""
        return self.cells(CONTROL, UNCORRECTED)

    def control(self, seed: int) -> CellResult | None:
        """That of a seed."""
        return next((each for each in self.controls if each.seed == seed and each.status == "done"), None)

    @property
    def elapsed(self) -> float:
        """Seconds in which at least one cell was running, however often the lab was interrupted."""
        total, until = 0.0, None
        for begun, ended in sorted(each.ran for each in self.entries if each.ran is not None):
            begun = begun if until is None else max(begun, until)
            if ended > begun:
                total += (ended - begun).total_seconds()
                until = ended
        return total

    def with_verdicts(self) -> LabResults:
        """The same with every verdict worked out anew, as those wait for their control."""
        return self.but(entries=tuple(self._with_verdict(each) for each in self.entries))

    def _with_verdict(self, entry: CellResult) -> CellResult:
        if entry.status == "failed":
            return entry
        is_control = (entry.scenario, entry.correction) == (CONTROL, UNCORRECTED)
        control = None if is_control else self.control(entry.seed)
        outcome = cell_verdict(
            entry.evaluated,
            entry.starved,
            control=None if control is None else control.evaluated,
            problems=entry.problems,
            steps=entry.steps,
        )
        return entry.but(verdict=_lab_verdict(outcome))


def _lab_verdict(outcome: CellVerdict) -> LabVerdict | None:
    return None if outcome.word == "unknown" else LabVerdict(**vars(outcome))


def write_results(path: Path, results: LabResults) -> None:
    """lab.json in a lab's folder, whole or as it was."""
    text = json.dumps(results.model_dump(mode="json"), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    write_whole(path / "lab.json", text.encode() + b"\n")


def read_results(path: Path) -> LabResults:
    """The lab in a folder, or of a lab.json."""
    file = path / "lab.json" if os.path.isdir(path) else path
    try:
        with opened(file) as source:
            content = json_data(source.read())
    except OSError as error:
        raise RecordError(f"{file} cannot be read: {error.strerror}. `trimtab lab --out DIR` writes it.") from error
    except ValueError:
        raise RecordError(f"{file} needs to be the JSON of a lab, got a damaged file. Run the lab again.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
        raise RecordError(f"{file} needs format {FORMAT}, got another. Read it with the trimtab that wrote it.")
    try:
        return LabResults.from_settings(content)
    except ConfigError as error:
        raise RecordError(f"{file}: {error}") from None


def empty_results(
    cells: Sequence[Cell], scenarios: Mapping[str, str], base: Mapping[str, Any], steps: int
) -> LabResults:
    """A lab none of whose cells has ended."""
    return LabResults(
        trimtab=trimtab_version(),
        steps=steps,
        seeds=tuple(dict.fromkeys(cell.seed for cell in cells)),
        base=dict(base),
        scenarios=dict(scenarios),
        corrections={cell.correction: cell.config.correction.settings() for cell in cells},
        planned=len(cells),
        machine=_machine(),
    )


def _machine() -> str:
    torch = importlib.metadata.version("torch").partition("+")[0]
    return f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch}"


def failed_result(cell: Cell, message: str) -> CellResult:
    """A cell that could not be run to the end."""
    return CellResult(**_identity(cell), status="failed", message=message)


def done_result(cell: Cell, path: Path) -> CellResult:
    """A finished run, read."""
    run = RunDirectory.read(path)
    lines = run.metrics()
    series = {name: _metric_series(lines, metric) for name, (metric, _) in CURVES.items()}
    finite = {name: curve.finite.values for name, curve in series.items() if len(curve.finite)}
    evaluate, events = cell.config.evaluate, run.events()
    counted = next((int(each["problems"]) for each in events if each["kind"] == "start" and "problems" in each), None)
    return CellResult(
        **_identity(cell),
        status="done",
        steps=len(lines),
        seconds=round(sum(float(line.get("time/step", 0.0)) for line in lines), 2),
        ran=(run.facts["created"], run.facts["ended"]),
        problems=counted or (evaluate.problems if evaluate else 0),
        starved=starved_share(series["kept"]),
        accuracy=_accuracies(events, lines),
        curves={name: binned_curve(curve, len(lines), CURVES[name][1]) for name, curve in series.items() if len(curve)},
        medians={name: _four_digits(np.median(values)) for name, values in finite.items()},
        most={name: _four_digits(values.max()) for name, values in finite.items()},
        pairing=cell_pairing(run),
    )


def _metric_series(lines: Sequence[Mapping[str, Any]], metric: str) -> Series:
    return Series.of((int(line["step"]), float(line[metric])) for line in lines if metric in line)


def _accuracies(
    events: Sequence[Mapping[str, Any]], lines: Sequence[Mapping[str, Any]]
) -> tuple[tuple[int, float], ...]:
    """Steps done and held-out accuracy: (0, …) is that of the warm start, (40, …) was measured after the line of step 39."""
    start = [(0, float(each["accuracy"])) for each in events if each["kind"] == "start"][:1]
    return (*start, *((int(e["step"]) + 1, float(e["eval/accuracy"])) for e in lines if "eval/accuracy" in e))


def binned_curve(series: Series, steps: int, gathered: Gathered) -> BinnedCurve:
    """At most `POINTS` points, each of neighbouring steps: 400 steps are 80 points of 5, 160 steps 80 points of 2."""
    every = -(-steps // POINTS)
    values: list[float | None] = []
    for first in range(0, steps, every):
        part = series.within(first, first + every - 1).finite.values
        values.append(_four_digits(_GATHER[gathered](part)) if len(part) else None)
    return BinnedCurve(every=every, values=tuple(values))


def _identity(cell: Cell) -> dict[str, Any]:
    return {
        "scenario": cell.scenario,
        "correction": cell.correction,
        "seed": cell.seed,
        "name": cell.name,
        "fingerprint": cell.fingerprint,
    }


def _four_digits(value: Any) -> float:
    return float(f"{float(value):.4g}")
