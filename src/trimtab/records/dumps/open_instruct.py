"""open-instruct: `{run}_rollouts_{shard}.jsonl`, a line per response with the log-probs of its sampler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.errors import RecordError
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader
from trimtab.records.dumps.row import DumpRow, after, float_column, int_column


def _knows(file: DumpFile) -> bool:
    return {"prompt_tokens", "response_tokens", "finish_reason", "prompt_idx"} <= file.first.keys()


def _rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    prompt, response = int_column(record["prompt_tokens"]), int_column(record["response_tokens"])
    behavior = float_column(record["logprobs"]) if record.get("logprobs") is not None else None
    if behavior is not None and len(behavior) != len(response):
        raise RecordError(f"{len(behavior)} log-probs for {len(response)} tokens")
    step = int(record["step"])
    advantage = record.get("advantage")
    yield DumpRow(
        tokens=np.concatenate([prompt, response]),
        trained=np.arange(len(prompt) + len(response)) >= len(prompt),
        behavior=after(len(prompt), behavior, "behavior"),
        advantage=None if advantage is None else np.full(len(prompt) + len(response), float(advantage), np.float32),
        group=(step, int(record["prompt_idx"])),
        reward=float(record["reward"]),
        step=step,
        finish=str(record["finish_reason"]),
    )


OPEN_INSTRUCT = DumpReader(
    framework="open-instruct",
    files="{run}_rollouts_{shard}.jsonl",
    option="`--save_traces --rollouts_save_path DIR`",
    knows=_knows,
    rows=_rows,
    absent={
        "proximal": f"--model, or {RECORDER}: open-instruct saves the sampler's log-probs only",
        "versions": RECORDER,
    },
    notes=("The file has no mask: every token of a response counts as trained, those of tools too.",),
)
