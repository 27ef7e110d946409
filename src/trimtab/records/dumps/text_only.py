"""Dumps that hold text and rewards, no log-probs: TRL, ms-swift, AReaL. They say what would bring the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.errors import RecordError
from trimtab.records.dumps.columns import parquet_rows
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader
from trimtab.records.dumps.row import DumpRow, text_row

_TEXT = ("The file has text only, no tokens and no log-probs.",)
_NOT_REWARDS = ("step", "prompt", "completion", "advantage", "image", "images")


def _knows_trl(file: DumpFile) -> bool:
    return file.kind == "parquet" and {"step", "prompt", "completion", "advantage"} <= set(file.names)


def _trl_records(file: DumpFile) -> Iterator[dict[str, Any]]:
    schema = file.schema
    numbers = (
        [] if schema is None else [name for name in schema.names if str(schema.field(name).type) in ("double", "float")]
    )
    wanted = {name: name for name in ("step", "prompt", "completion", *numbers)}
    return parquet_rows(file, wanted)


def _trl_rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    rewards = [float(value) for name, value in record.items() if name not in _NOT_REWARDS and value is not None]
    prompt = _words(record["prompt"])
    step = int(record["step"])
    total = sum(rewards) if rewards else None
    yield text_row(prompt + _words(record["completion"]), reward=total, step=step, group=(step, prompt))


def _knows_swift(file: DumpFile) -> bool:
    first = file.first
    return {"step", "prompt", "completion", "advantages"} <= first.keys() and isinstance(first["prompt"], list)


def _swift_rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    """A line is a step: a list under each name."""
    count = len(record["prompt"])
    if any(len(record[name]) != count for name in ("step", "completion")):
        raise RecordError("a step whose lists have different lengths")
    for index in range(count):
        prompt, step = _words(record["prompt"][index]), int(record["step"][index])
        yield text_row(prompt + _words(record["completion"][index]), step=step, group=(step, prompt))


def _knows_areal(file: DumpFile) -> bool:
    return {"task_id", "seqlen", "prompt_len", "tail_version", "completion"} <= file.first.keys()


def _areal_rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    """Lengths and versions stand in the file though the tokens do not."""
    length, prompt = int(record["seqlen"]), int(record["prompt_len"])
    tail = int(record["tail_version"])
    runs = [(int(version), int(count)) for version, count in record.get("version_rle") or ()]
    if not runs and record.get("head_version") == tail:
        runs = [(tail, length - prompt)]
    sampled = np.repeat([version for version, _ in runs], [count for _, count in runs]) if runs else np.empty(0, int)
    versions = np.full(length, -1)
    if len(sampled) in (length, length - prompt):
        versions[length - len(sampled) :] = sampled
    versions[:prompt] = -1
    yield DumpRow(
        trained=np.arange(length) >= prompt,
        versions=versions,
        reward=float(record["reward"]),
        step=tail,
        group=str(record["task_id"]),
        text=f"{record['prompt']}{record['completion']}",
    )


def _words(value: Any) -> str:
    """Text, or a conversation as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value.tolist() if isinstance(value, np.ndarray) else value, ensure_ascii=False, default=str)


_ALL = {"tokens": RECORDER, "behavior": RECORDER, "proximal": RECORDER, "versions": RECORDER}

TRL = DumpReader(
    framework="trl",
    files="completions/completions_{step}.parquet",
    option="`log_completions=True`",
    knows=_knows_trl,
    records=_trl_records,
    rows=_trl_rows,
    absent=_ALL,
    notes=_TEXT,
)
MS_SWIFT = DumpReader(
    framework="ms-swift",
    files="completions.jsonl",
    option="`--log_completions true`",
    knows=_knows_swift,
    rows=_swift_rows,
    absent=_ALL,
    notes=_TEXT,
)
AREAL = DumpReader(
    framework="areal",
    files="rollout/{version}/{task_id}.jsonl",
    option="`rollout.dump_to_file: true`",
    knows=_knows_areal,
    rows=_areal_rows,
    absent={"tokens": RECORDER, "behavior": RECORDER, "proximal": RECORDER, "advantage": RECORDER},
    notes=("The file has lengths and versions, and text for tokens; it has no log-probs.",),
)
