"""What a run directory should hold of the steps before a checkpoint and does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trimtab.records.run import RunDirectory


def gaps(run: RunDirectory, steps: Iterable[int], *, rows: int | None, per_step: int | None) -> list[str]:
    """One sentence for each sort of record that lacks something of these steps; none where all is there.

    `rows`: rollouts recorded of all steps, None where that is not known; `per_step`: of each, where each has as many.
    """
    wanted = sorted(steps)
    lines = Counter(int(line["step"]) for line in run.metrics())
    absent = [step for step in wanted if not lines[step]]
    double = [step for step in wanted if lines[step] > 1]
    found = run.rows
    short = [step for step in wanted if found[step] < per_step] if per_step else []
    said: list[str] = []
    if absent:
        said.append(f"metrics.jsonl has no line of {_steps_text(absent)}.")
    if double:
        said.append(f"metrics.jsonl has more than one line of {_steps_text(double)}.")
    if short:
        said.append(f"Rollouts are missing of {_steps_text(short)}.")
    elif rows is not None and found.total() < rows:
        said.append(f"Rollouts are missing: {found.total()} of {rows} are there.")
    return said


def _steps_text(steps: list[int]) -> str:
    """Steps as text: runs of them by their ends, and of many runs the first few."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and runs[-1][1] == step - 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    words = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    more = f" and {len(words) - 5} more stretches" if len(words) > 5 else ""
    return f"{'step' if len(steps) == 1 else 'steps'} {', '.join(words[:5])}{more}"
