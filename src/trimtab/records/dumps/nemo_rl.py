"""NeMo-RL: `train_data_step{N}.jsonl` in its log folder, a line per sample, written unless it is switched off.

Every value is a list of one: `{"token_ids": [[…]], "rewards": [1.0]}`. Lists per token run over prompt, response and padding, or
stop at `input_lengths`; index t of a log-prob is token t's, so that index 0 holds nothing. What vLLM did not say is 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader
from trimtab.records.dumps.row import DumpRow, float_column, int_column, mask_column

_LOG_PROBS = {
    "behavior": "generation_logprobs",
    "proximal": "prev_logprobs",
    "reference": "reference_policy_logprobs",
}


def _knows(file: DumpFile) -> bool:
    return {"token_ids", "token_loss_mask", "generation_logprobs", "input_lengths"} <= file.first.keys()


def _knows_first(file: DumpFile) -> bool:
    return {"generation_logprobs", "prev_logprobs", "input_lengths"} <= file.first.keys()


def _rows(record: dict[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    tokens = int_column(record["token_ids"]) if "token_ids" in record else None
    wide: dict[str, Any] = {name: float_column(record[key]) for name, key in _LOG_PROBS.items() if key in record}
    width = len(wide["behavior"])
    length = int(_one(record.get("input_lengths"), width))
    known = {name: column[:length] for name, column in wide.items()}
    trained = mask_column(record["token_loss_mask"])[:length] if "token_loss_mask" in record else known["behavior"] != 0
    for column in known.values():
        column[:1] = float("nan")  # nothing comes before the first token
    if float(_one(record.get("sample_loss_mask"), 1.0)) == 0:
        trained[:] = False
    yield DumpRow(
        tokens=None if tokens is None else tokens[:length],
        trained=trained,
        advantage=_advantage(record, width, length),
        reward=_one(record.get("rewards"), None),
        step=int(record.get("step", file.number if file.number is not None else -1)),
        text=_text(record.get("content")),
        **known,
    )


def _advantage(record: dict[str, Any], width: int, length: int) -> Any:
    values = float_column(record["advantages"]) if "advantages" in record else None
    if values is None or len(values) in (length, width):
        return None if values is None else values[:length]
    return values.repeat(length) if len(values) == 1 else values


def _one(value: Any, default: Any) -> Any:
    """A value out of its list of one."""
    while isinstance(value, list):
        value = value[0] if value else None
    return default if value is None else value


def _text(content: Any) -> str | None:
    while isinstance(content, list) and len(content) == 1:
        content = content[0]
    return "".join(map(str, content)) if isinstance(content, list) else content


_ABSENT = {
    "versions": f"{RECORDER}: NeMo-RL writes no version of the sampling weights",
    "current": f"{RECORDER}: NeMo-RL writes the log-probs of the start of the step only",
}

NEMO_RL = DumpReader(
    framework="nemo-rl",
    files="train_data_step{N}.jsonl",
    option="written by default; `env.should_log_nemo_gym_responses` switches it off",
    knows=_knows,
    rows=_rows,
    absent=_ABSENT,
)

NEMO_RL_FIRST = DumpReader(
    framework="nemo-rl",
    files="train_data_step{N}.jsonl of 2025, without tokens and mask",
    option="written by default",
    knows=_knows_first,
    rows=_rows,
    absent=_ABSENT | {"tokens": "NeMo-RL of 2026 writes token_ids and token_loss_mask", "advantage": "NeMo-RL of 2026"},
    notes=("The file has no mask: tokens whose generation_logprobs are not 0.0 count as trained.",),
)
