from pathlib import Path

import pytest

from tests.records.rows import row
from trimtab.records import RunDirectory


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (range(12), []),
        ([0, 1, 2, 4, *range(6, 12)], ["metrics.jsonl has no line of steps 3, 5."]),
        ([0], ["metrics.jsonl has no line of steps 1 to 11."]),
        ([*range(11)], ["metrics.jsonl has no line of step 11."]),
        ([*range(12), 4, 4, 5], ["metrics.jsonl has more than one line of steps 4 to 5."]),
        ([1, 3, 5, 7, 9, 11], ["metrics.jsonl has no line of steps 0, 2, 4, 6, 8 and 1 more stretches."]),
    ],
)
def test_lines_that_are_missing_or_double_are_named(tmp_path: Path, lines: list[int], said: list[str]) -> None:
    with RunDirectory.create(tmp_path / "run", {}) as run:
        for step in lines:
            run.log(step, {"a": 1.0})
        assert run.gaps(range(12), rows=None, per_step=None) == said


def test_rollouts_are_missed_by_step_or_by_their_number(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {}) as run:
        for step in range(4):
            run.log(step, {"a": 1.0})
            run.rollouts([row(step, group=2 * step), *([row(step, group=2 * step + 1)] if step != 2 else [])])
        assert run.gaps(range(4), rows=8, per_step=2) == ["Rollouts are missing of step 2."]
        assert run.gaps(range(4), rows=8, per_step=None) == ["Rollouts are missing: 7 of 8 are there."]
        assert run.gaps(range(4), rows=7, per_step=None) == []
