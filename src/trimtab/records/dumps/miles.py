"""miles: the three policies of each call of its loss (`policy_loss_debug`), and the columns of its dashboard; else as slime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.records.dumps.columns import parquet_rows
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader, sample_records
from trimtab.records.dumps.row import DumpRow, after, float_column, int_column, mask_column

_LOSS = {
    "behavior": "rollout_log_probs",
    "proximal": "old_log_probs",
    "current": "train_log_probs",
    "advantage": "advantages",
}
_DASHBOARD = {"tokens": "tokens", "trained": "loss_mask", "behavior": "rollout_log_probs"}


def _knows_loss(file: DumpFile) -> bool:
    return (
        file.kind == "torch" and bool(file.samples) and {"train_log_probs", "old_log_probs"} <= file.samples[0].keys()
    )


def _loss_rows(sample: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    trained = mask_column(sample["local_loss_mask"])
    known = {name: _spread(float_column(sample[key]), len(trained)) for name, key in _LOSS.items() if key in sample}
    yield DumpRow(trained=trained, source=f"rank {file.content.get('rank', 0)}", **known)


def _spread(values: Any, length: int) -> Any:
    """An advantage of the whole sequence stands for each of its tokens."""
    return values.repeat(length) if len(values) == 1 != length else values


def _knows_dashboard(file: DumpFile) -> bool:
    return file.kind == "parquet" and {"sample_index", *_DASHBOARD.values()} <= set(file.names)


def _dashboard_records(file: DumpFile) -> Iterator[dict[str, Any]]:
    return parquet_rows(file, _DASHBOARD)


def _dashboard_rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    tokens, trained = int_column(record["tokens"]), mask_column(record["trained"])
    prompt = len(tokens) - len(trained)
    behavior = None if record["behavior"] is None else after(prompt, float_column(record["behavior"]), "behavior")
    whole = np.concatenate([np.zeros(prompt, bool), trained])
    yield DumpRow(tokens=tokens, trained=whole, behavior=behavior, step=file.number)


MILES_LOSS = DumpReader(
    framework="miles",
    family="slime",
    files="policy_loss_debug/rank_{R}_call_{C}.pt",
    option="`--dump-details DIR`",
    knows=_knows_loss,
    records=sample_records,
    rows=_loss_rows,
    copies=True,
    absent={
        "tokens": "rollout_data or train_data of the same run, or " + RECORDER,
        "versions": "rollout_data of the same run, which has the version of each call",
        "group": "rollout_data of the same run",
        "reward": "rollout_data of the same run",
    },
    notes=(
        "Sequences are responses without their prompts, and where a sequence was split over ranks, the part of one rank.",
    ),
)
MILES_DASHBOARD = DumpReader(
    framework="miles",
    family="slime",
    files="dashboard_columns/rollout_{id}.parquet",
    option="`--dump-details DIR`",
    knows=_knows_dashboard,
    records=_dashboard_records,
    rows=_dashboard_rows,
    absent={"proximal": "policy_loss_debug of the same run, or --model", "versions": "rollout_data of the same run"},
)
