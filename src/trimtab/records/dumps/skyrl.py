"""SkyRL: the batch of a step, pickled.

`sequences` are padded in front; columns of R responses stand under the last R tokens, see `padded_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.errors import RecordError
from trimtab.records.dumps.pickles import torch_content
from trimtab.records.dumps.pickles.tensors import typed_bytes
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader, whole_record
from trimtab.records.dumps.row import DumpRow, padded_rows

_COLUMNS = {
    "trained": "loss_mask",
    "behavior": "rollout_logprobs",
    "proximal": "action_log_probs",
    "reference": "base_action_log_probs",
    "advantage": "advantages",
}


def _knows(file: DumpFile) -> bool:
    if file.kind != "pickle" or not isinstance(file.content, dict):
        return False
    inner = file.content.get("batch_dict")
    return isinstance(inner, dict) and {"sequences", "attention_mask", "loss_mask"} <= inner.keys()


def _rows(state: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    held = state["batch_dict"]
    metadata = state.get("metadata") or {}
    count = len(_array(held["sequences"], file)) - int(metadata.get("pad_size") or 0)
    columns = {name: _array(held[key], file)[:count] for name, key in _COLUMNS.items() if held.get(key) is not None}
    tokens, attention = (_array(held[key], file)[:count] for key in ("sequences", "attention_mask"))
    uids = metadata.get("uids") or [None] * count
    facts = [{"step": file.number, "group": uids[index]} for index in range(count)]
    return padded_rows(tokens, attention, columns, facts)


def _array(value: Any, file: DumpFile) -> Any:
    if not isinstance(value, dict) or "data" not in value:
        raise RecordError("a tensor of it is not saved as SkyRL does")
    if value.get("format") == "torch":
        return torch_content(bytes(value["data"]), file.path)
    return typed_bytes(value["data"], value["dtype"], value["shape"])


SKYRL = DumpReader(
    framework="skyrl",
    files="dumped_data/global_step_{N}_training_input.pkl",
    option="`trainer.dump_data_batch: true`",
    knows=_knows,
    records=whole_record,
    rows=_rows,
    absent={
        "behavior": "`generator.sampling_params.logprobs: 1`, without which the engine returns no log-probs",
        "versions": f"{RECORDER}: SkyRL saves no version of the sampling weights",
        "reward": f"{RECORDER}: SkyRL takes rewards and uids out before it saves",
        "current": f"{RECORDER}: SkyRL saves the log-probs of the start of the step only",
    },
)
