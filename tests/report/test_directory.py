"""From a run directory on disk to its report."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report import made
from trimtab.errors import TrimtabError
from trimtab.records import RunDirectory, rows_from, table_of
from trimtab.records.schema import ROWS
from trimtab.report import write_report
from trimtab.report.run import read_run, steps_to_read


def on_disk(folder: Path, steps: int = 40) -> Path:
    run = made.run("healthy", steps=steps)
    assert run.rollouts is not None
    table = run.rollouts
    for field in ROWS:
        if field.name not in table.column_names:
            table = table.append_column(field.name, made.pa.nulls(table.num_rows, field.type))
    with RunDirectory.create(folder / "first-try", run.settings) as made_run:
        for line in run.metrics:
            made_run.log(line["step"], {name: value for name, value in line.items() if name != "step"})
        made_run.event("sampler", "sampler 0 restarted", step=7)
        made_run.rollouts(rows_from(table.select([field.name for field in ROWS])))
    return folder / "first-try"


def test_a_run_directory_becomes_one_file_in_it(tmp_path: Path) -> None:
    path = on_disk(tmp_path)
    where = write_report(path)
    assert where == path / "report.html"
    page = where.read_text(encoding="utf-8")
    assert "<title>first-try · trimtab</title>" in page
    assert "sampler 0 restarted" in page
    assert page.count("<article") == 12  # three phases, right and wrong, two each
    assert [entry.name for entry in path.iterdir() if entry.name.startswith(".")] == []


def test_the_report_can_go_elsewhere_and_a_second_one_replaces_the_first(tmp_path: Path) -> None:
    path = on_disk(tmp_path, steps=12)
    out = tmp_path / "elsewhere.html"
    out.write_text("before")
    assert write_report(path, out) == out
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert not (path / "report.html").exists()


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    run = read_run(on_disk(tmp_path, steps=12))
    assert run.series("drift/k3").steps.tolist() == list(range(1, 13))  # recorded from 0, shown from 1
    assert run.status == "done"
    assert run.setting("rollout.max_staleness") == 4
    assert run.rollouts is not None
    assert run.rollouts.num_rows == 24  # steps 0, 5, 10 with eight responses each


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrimtabError):
        write_report(tmp_path)


def test_of_a_large_run_steps_are_read_that_span_it_and_the_worst() -> None:
    recorded = np.repeat(np.arange(1000), 128)
    metrics = [{"step": step, "rollout/length": 25.0, "drift/k3": 9.0 if step == 501 else 0.1} for step in range(1000)]
    steps = steps_to_read(recorded, metrics)
    assert steps is not None
    assert {0, 501, 999} <= set(steps.tolist())
    assert 128 * len(steps) <= 20_000 + 3 * 128
    assert steps_to_read(recorded[:1000], metrics) is None
    # 4,000,000 tokens of 4,000 each: 1,000 rows
    assert steps_to_read(recorded[:2000], [{"step": 0, "rollout/length": 4000.0}]) is not None


def test_the_made_up_rows_fit_the_schema(tmp_path: Path) -> None:
    assert table_of([]).schema.names == ROWS.names
    assert set(made.COLUMNS) <= set(ROWS.names)


def test_a_report_of_a_run_that_saves_and_prunes_meanwhile_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = on_disk(tmp_path)
    for name in (".saving-step-000030", ".removing-step-000010", "step-000020"):
        (path / "checkpoints" / name / "model").mkdir(parents=True)
        (path / "checkpoints" / name / "model" / "tokenizer.json").write_text("half of it")
    scandir = os.scandir

    def racing(folder: Any = ".") -> Any:
        """Each folder of a checkpoint is gone by the time it is looked into."""
        if Path(folder).parent.name == "checkpoints":
            shutil.rmtree(folder)
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", racing)
    assert write_report(path).exists()
