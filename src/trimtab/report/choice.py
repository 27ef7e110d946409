"""Which rollouts a report shows: a handful from the start, the worst moment and the end, right and wrong."""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.report.run import FIRST_STEP, Run
from trimtab.report.tokens import Tokens, bool_column


@dataclass(frozen=True)
class ChosenRollout:
    """A row of the rollout table and why it is shown."""

    row: int
    phase: str
    why: str


def choose_rollouts(run: Run, found: Tokens | None) -> list[ChosenRollout]:
    """For each phase, of the right and of the wrong responses, one of usual mismatch and the one of largest."""
    table = run.rollouts
    if table is None or table.num_rows == 0:
        return []
    steps = table.column("step").to_numpy() + FIRST_STEP
    correct = bool_column(table, "correct")
    gap = row_mismatch(table, found)
    shown: list[ChosenRollout] = []
    taken: set[int] = set()
    for phase, rows in phases(run, steps, gap).items():
        for label, right in (("right", True), ("wrong", False)):
            here = rows[correct[rows] == right]
            for why, row in _two(here, gap):
                if row not in taken:
                    taken.add(row)
                    shown.append(ChosenRollout(row, phase, f"{label}, {why}"))
    return shown


def phases(run: Run, steps: NDArray[np.int64], gap: NDArray[np.float64]) -> dict[str, NDArray[np.int64]]:
    """Rows of the first and the last recorded steps, and of the step where the policies were farthest apart."""
    known = np.unique(steps)
    tenth = max(1, len(known) // 10)
    drift = run.series("drift/k3").finite
    shared = np.isin(drift.steps, known)
    if shared.any():
        worst = int(drift.steps[shared][np.argmax(drift.values[shared])])
    else:
        by_step = [np.nan_to_num(gap[steps == step]).mean() for step in known[:: max(1, len(known) // 200)]]
        worst = int(known[:: max(1, len(known) // 200)][int(np.argmax(by_step))])
    return {
        f"Start (steps {known[0]}–{known[tenth - 1]})": np.flatnonzero(steps <= known[tenth - 1]),
        f"Where the policies were farthest apart (step {worst})": np.flatnonzero(steps == worst),
        f"End (steps {known[-tenth]}–{known[-1]})": np.flatnonzero(steps >= known[-tenth]),
    }


def row_mismatch(table: pa.Table, found: Tokens | None) -> NDArray[np.float64]:
    """Mean |ℓ| of each row; NaN for rows that were not looked at."""
    gap = np.full(table.num_rows, np.nan)
    if found is None or not len(found):
        return gap
    total = np.bincount(found.row, np.abs(np.clip(found.log_r, -20, 20)), table.num_rows)
    count = np.bincount(found.row, minlength=table.num_rows)
    return np.where(count > 0, total / np.maximum(count, 1), gap)


def _two(rows: NDArray[np.int64], gap: NDArray[np.float64]) -> list[tuple[str, int]]:
    known = rows[np.isfinite(gap[rows])]
    if not len(known):
        return [("as it came", int(row)) for row in rows[:1]]
    order = known[np.argsort(gap[known], kind="stable")]
    return [("usual mismatch", int(order[len(order) // 2])), ("largest mismatch", int(order[-1]))]
