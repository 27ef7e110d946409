"""ROLL: the batch of a step as its sampler hands it on, a pickled DataProto.

Tokens and masks are S wide, log-probs S − 1: those of all tokens but the first, see `padded_rows`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.errors import RecordError
from trimtab.records.dumps.pickles import torch_content
from trimtab.records.dumps.pickles.tensors import Husk, plain
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader, whole_record
from trimtab.records.dumps.row import DumpRow, padded_rows

_NAME = "roll.distributed.scheduler.protocol.DataProto"
_COLUMNS = {
    "trained": "response_mask",
    "behavior": "infer_logprobs",
    "proximal": "old_log_probs",
    "reference": "ref_log_probs",
    "advantage": "advantages",
}


def _knows(file: DumpFile) -> bool:
    return file.kind == "pickle" and isinstance(file.content, Husk) and file.content.name == _NAME


def _rows(proto: Husk, file: DumpFile) -> Iterator[DumpRow]:
    stream, others, *_ = proto.state
    held = torch_content(_bytes_of(stream), file.path)
    if not {"input_ids", "attention_mask", "response_mask"} <= held.keys():
        raise RecordError(
            "its DataProto has no input_ids, attention_mask or response_mask: it is no batch of a rollout"
        )
    tokens, scores = held["input_ids"], held.get("scores")
    groups = plain(others["group_ids"]) if "group_ids" in others else [None] * len(tokens)
    facts = [
        {
            "step": file.number,
            "group": None if groups[index] is None else (file.number, str(groups[index])),
            "reward": None if scores is None else float(scores[index].sum()),  # one per row, or spread over its tokens
        }
        for index in range(len(tokens))
    ]
    columns = {name: held[key] for name, key in _COLUMNS.items() if key in held}
    return padded_rows(tokens, held["attention_mask"], columns, facts)


def _bytes_of(stream: Any) -> bytes:
    """What a pickled BytesIO holds."""
    content = stream.state[0] if isinstance(stream, Husk) and isinstance(stream.state, tuple) and stream.state else None
    if not isinstance(content, bytes):
        raise RecordError("its DataProto holds no tensors of its own, as where they stand in Ray's object store")
    return content


ROLL = DumpReader(
    framework="roll",
    files="{dump_dir}/train/step_{N}.pkl",
    option="`rollout_mock: {enable: true, mode: dump, dump_dir: DIR}`",
    knows=_knows,
    records=whole_record,
    rows=_rows,
    absent={
        "behavior": "log-probs of the engine (`actor_infer.generating_args.logprobs`), which ROLL asks for where a correction needs them",
        "proximal": f"--model, or {RECORDER}: ROLL saves rollouts before its trainer has seen them",
        "advantage": f"{RECORDER}: ROLL saves rollouts before its trainer has seen them",
        "versions": f"{RECORDER}: ROLL saves no version of the sampling weights",
    },
)
