"""slime: what it trained on (`train_data`) and what it sampled (`rollout_data`), both by `torch.save`; miles writes them too.

`tokens` run over prompt and response, all else over the response alone. `log_probs` are the trainer's at the start of the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import RecordError
from trimtab.records.dumps.pickles.tensors import plain
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader, sample_records
from trimtab.records.dumps.row import DumpRow, after, float_column, int_column, mask_column

_TRAINED = {
    "behavior": "rollout_log_probs",
    "proximal": "log_probs",
    "reference": "ref_log_probs",
    "advantage": "advantages",
}


def _knows_train(file: DumpFile) -> bool:
    return file.kind == "torch" and bool(file.samples) and {"response_lengths", "loss_masks"} <= file.samples[0].keys()


def _knows_ranks(file: DumpFile) -> bool:
    data = file.content.get("rollout_data") if file.kind == "torch" and isinstance(file.content, dict) else None
    return isinstance(data, dict) and {"tokens", "response_lengths"} <= data.keys()


def _knows_rollout(file: DumpFile) -> bool:
    return (
        file.kind == "torch"
        and bool(file.samples)
        and {"tokens", "response_length", "status"} <= file.samples[0].keys()
    )


def _train_rows(sample: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    row = _row(sample, _TRAINED, mask="loss_masks", step=_number(file), truncated=sample.get("truncated"))
    rollout = _rollout_of(sample, file)
    same = rollout is not None and np.array_equal(
        int_column(plain(rollout["tokens"])), int_column(plain(sample["tokens"]))
    )
    yield replace(row, **_facts(rollout, row)) if rollout is not None and same else row


def _rollout_of(sample: Mapping[str, Any], file: DumpFile) -> Mapping[str, Any] | None:
    """The same sample as `rollout_data` beside it has it, by its place there: versions, group and status stand only there."""
    place, path = sample.get("rollout_position"), file.path.parent.parent / "rollout_data" / file.path.name
    if not isinstance(place, int) or not path.is_file():
        return None
    samples = _samples(path, path.stat().st_mtime_ns)
    return samples[place] if 0 <= place < len(samples) else None


@lru_cache(maxsize=1)
def _samples(path: Path, changed: int) -> list[dict[str, Any]]:
    other = DumpFile(path)
    return other.samples if _knows_rollout(other) else []


def _rank_records(file: DumpFile) -> Iterator[dict[str, Any]]:
    """The columns of one rank, sample by sample."""
    data = {key: column for key, column in file.content["rollout_data"].items() if isinstance(column, list)}
    for index in range(len(data["tokens"])):
        yield {key: column[index] for key, column in data.items() if len(column) == len(data["tokens"])}


def _rollout_rows(sample: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    row = _row(sample, {"behavior": "rollout_log_probs"}, mask="loss_mask", step=_number(file), truncated=None)
    if sample.get("remove_sample"):
        row.trained[:] = False
    yield replace(row, **_facts(sample, row))


def _facts(sample: Mapping[str, Any], row: DumpRow) -> dict[str, Any]:
    """What only the rollout knows of a sample: version, group, why it ended, its text."""
    length = int(sample["response_length"])
    calls = {str(version) for version in sample.get("weight_versions") or ()}
    version = int(next(iter(calls))) if len(calls) == 1 and next(iter(calls)).isdigit() else -1
    group = sample.get("group_index")
    return {
        "versions": after(len(row.trained) - length, np.full(length, version), "versions") if calls else None,
        "group": None if group is None else (row.step, group),
        "finish": str(sample["status"]),
        "text": _text(sample),
    }


def _row(
    sample: Mapping[str, Any], columns: Mapping[str, str], *, mask: str, step: int | None, truncated: Any
) -> DumpRow:
    tokens = int_column(plain(sample["tokens"]))
    length = int(sample.get("response_length", sample.get("response_lengths", 0)))
    prompt = len(tokens) - length
    known = {
        name: _response(sample.get(key), length, key) for name, key in columns.items() if sample.get(key) is not None
    }
    trained = mask_column(plain(sample[mask])) if sample.get(mask) is not None else np.ones(length, bool)
    reward = sample.get("rewards", sample.get("reward"))
    return DumpRow(
        tokens=tokens,
        trained=np.concatenate([np.zeros(prompt, bool), trained]),
        reward=float(reward) if isinstance(reward, int | float) else None,
        step=step,
        finish=None if truncated is None else "length" if truncated else "stop",
        **{name: after(prompt, column, name) for name, column in known.items()},
    )


def _response(values: Any, length: int, key: str) -> Any:
    column = float_column(plain(values))
    if len(column) != length:
        raise RecordError(
            f"{key} has {len(column)} values for a response of {length}: one rank's share of a sequence that was split"
        )
    return column


def _number(file: DumpFile) -> int | None:
    number = file.content.get("rollout_id", file.number)
    return None if number is None else int(number)


def _text(sample: Mapping[str, Any]) -> str | None:
    prompt, response = sample.get("prompt"), sample.get("response")
    return f"{prompt}{response}" if isinstance(prompt, str) and isinstance(response, str) else response


_VERSIONS = (
    "rollout_data of the same run, which has the version of each call: --save-debug-rollout-data or --dump-details"
)
_CURRENT = f"miles' policy_loss_debug, or {RECORDER}"

SLIME_TRAIN = DumpReader(
    framework="slime",
    family="slime",
    files="train_data/{rollout_id}.pt",
    option="`--save-debug-train-data PATH` or `--dump-details DIR`",
    knows=_knows_train,
    records=sample_records,
    rows=_train_rows,
    absent={"versions": _VERSIONS, "current": _CURRENT},
)
SLIME_RANKS = DumpReader(
    framework="slime",
    family="slime",
    files="train data of one rank, {rollout_id}_{rank}.pt (before 2026)",
    option="`--save-debug-train-data PATH`",
    knows=_knows_ranks,
    records=_rank_records,
    rows=_train_rows,
    copies=True,
    absent={"versions": _VERSIONS, "current": _CURRENT},
)
SLIME_ROLLOUT = DumpReader(
    framework="slime",
    family="slime",
    files="rollout_data/{rollout_id}.pt",
    option="`--save-debug-rollout-data PATH` or `--dump-details DIR`",
    knows=_knows_rollout,
    records=sample_records,
    rows=_rollout_rows,
    absent={
        "proximal": "train_data of the same run (`--save-debug-train-data`), or --model",
        "advantage": "train_data of the same run (`--save-debug-train-data`)",
    },
    notes=(
        "A version is known where all calls of a sample had the same one: slime names one per call, not per token.",
    ),
)
