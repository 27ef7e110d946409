"""Run directories of `trimtab train`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.records.dumps.dump_file import DumpFile
from trimtab.records.dumps.reader import DumpReader
from trimtab.records.dumps.row import DumpRow, after
from trimtab.records.rollouts import Rollouts
from trimtab.records.run import RunDirectory
from trimtab.records.schema import RolloutRow, rows_from

_BESIDE = ("behavior", "proximal", "current", "reference", "advantage", "versions")


def _knows(file: DumpFile) -> bool:
    return file.kind == "run"


def _records(file: DumpFile) -> Iterator[RolloutRow]:
    run = RunDirectory.read(file.path)
    for block in Rollouts(run.path / "rollouts").blocks():
        yield from rows_from(block)


def _rows(row: RolloutRow, file: DumpFile) -> Iterator[DumpRow]:
    prompt = len(row.prompt_tokens)
    yield DumpRow(
        tokens=np.concatenate([row.prompt_tokens, row.tokens]),
        trained=np.concatenate([np.zeros(prompt, bool), row.mask]),
        group=(str(file.path), row.group),
        reward=row.reward,
        step=row.step,
        learner_version=row.version,
        finish=row.finish,
        text=row.prompt + row.response,
        **{name: after(prompt, getattr(row, name), name) for name in _BESIDE},
    )


OWN_RUN = DumpReader(
    framework="trimtab",
    files="a run directory",
    option="`trimtab train`; `record.rollouts` is the share of groups it keeps",
    knows=_knows,
    records=_records,
    rows=_rows,
)
