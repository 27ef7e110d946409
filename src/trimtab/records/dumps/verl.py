"""verl: the trajectories of a step (`tq_batch.pt`), a pickled DataProto (`gen_batch.dp`), or text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.errors import RecordError
from trimtab.records.dumps.pickles import torch_content
from trimtab.records.dumps.pickles.tensors import Husk, plain, typed_bytes
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader, whole_record
from trimtab.records.dumps.row import DumpRow, after, float_column, int_column, mask_column, padded_rows, text_row

_COLUMNS = {
    "trained": "response_mask",
    "behavior": "rollout_log_probs",
    "proximal": "old_log_probs",
    "reference": "ref_log_prob",
    "advantage": "advantages",
}


def _knows_queue(file: DumpFile) -> bool:
    return file.kind == "torch" and isinstance(file.content, dict) and {"tensordict", "keys"} <= file.content.keys()


def _queue_rows(saved: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    """Each trajectory has its own length; its key is `{prompt}_{session}_{index}`."""
    fields = saved["tensordict"]
    tags = list(saved.get("tags") or [])
    step = int(saved.get("global_steps", -1))
    for index, key in enumerate(saved["keys"]):
        prompt, response = int_column(fields["prompts"][index]), int_column(fields["responses"][index])
        known = {
            name: after(len(prompt), float_column(fields[column][index]), name)
            for name, column in _COLUMNS.items()
            if column in fields and name != "trained"
        }
        version = _version(tags[index] if index < len(tags) else {})
        yield DumpRow(
            tokens=np.concatenate([prompt, response]),
            trained=np.concatenate([np.zeros(len(prompt), bool), mask_column(fields["response_mask"][index])]),
            versions=None if version is None else after(len(prompt), np.full(len(response), version), "versions"),
            group=(step, str(key).partition("_")[0]),
            reward=float(float_column(fields["rm_scores"][index]).sum()) if "rm_scores" in fields else None,
            step=step,
            learner_version=step,
            **known,
        )


def _version(tag: Mapping[str, Any]) -> int | None:
    """The version of all tokens of a trajectory; -1 where it was sampled over several."""
    oldest, newest = tag.get("min_global_steps"), tag.get("max_global_steps")
    return None if oldest is None or newest is None else int(oldest) if oldest == newest else -1


def _knows_proto(file: DumpFile) -> bool:
    return file.kind == "pickle" and isinstance(file.content, Husk) and file.content.name == "verl.protocol.DataProto"


def _proto_rows(proto: Husk, file: DumpFile) -> Iterator[DumpRow]:
    """Prompts padded in front, responses behind; columns of the response stand under the last tokens."""
    packed, others, _ = proto.state
    held = torch_content(packed, file.path) if isinstance(packed, bytes) else _from_numpy(packed)
    if not {"responses", "attention_mask", "response_mask"} <= held.keys():
        raise RecordError(
            "its DataProto has no responses, attention_mask or response_mask: it is no batch of a rollout"
        )
    tokens = held["input_ids"] if "input_ids" in held else np.concatenate([held["prompts"], held["responses"]], 1)
    columns = {name: held[key] for name, key in _COLUMNS.items() if key in held}
    rewards = next((held[key].sum(-1) for key in ("token_level_scores", "rm_scores") if key in held), None)
    groups = plain(others["uid"]) if "uid" in others else [None] * len(tokens)
    step = next((int(part) for part in reversed(file.path.parts[:-1]) if part.isdigit()), None)
    facts = [
        {"step": step, "group": groups[index], "reward": None if rewards is None else float(rewards[index])}
        for index in range(len(tokens))
    ]
    return padded_rows(tokens, held["attention_mask"], columns, facts)


def _from_numpy(packed: Any) -> dict[str, Any]:
    """The other way DataProto is saved (`VERL_DATAPROTO_SERIALIZATION_METHOD=numpy`): bytes with type and shape."""
    _, _, items = packed
    return {key: typed_bytes(plain(item[2]), item[0], item[1]) for key, item in items.items() if len(item) == 3}


def _knows_text(file: DumpFile) -> bool:
    return {"input", "output", "score", "step"} <= file.first.keys()


def _text_rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    step = int(record["step"])
    group = record.get("uid", record["input"])
    yield text_row(
        f"{record['input']}{record['output']}", reward=float(record["score"]), step=step, group=(step, str(group))
    )


_BEHAVIOR = "`actor_rollout_ref.rollout.calculate_log_probs: true`"
_TRAINER = f"--model, or {RECORDER}: verl saves rollouts before its trainer has seen them"

VERL_QUEUE = DumpReader(
    framework="verl",
    files="{step}/{i}/tq_batch.pt",
    option="`skip.rollout_tq.enable: true` (`dump_dir`, `steps`)",
    knows=_knows_queue,
    records=whole_record,
    rows=_queue_rows,
    absent={"behavior": _BEHAVIOR, "proximal": _TRAINER, "advantage": _TRAINER},
    notes=("A version is known where a trajectory was sampled by one: verl names the oldest and the newest.",),
)
VERL_PROTO = DumpReader(
    framework="verl",
    files="gen_batch.dp",
    option="`skip.rollout.enable: true`, or DataProto.save_to_disk",
    knows=_knows_proto,
    records=whole_record,
    rows=_proto_rows,
    absent={
        "behavior": _BEHAVIOR,
        "proximal": _TRAINER,
        "versions": "tq_batch.pt of verl's newer trainer",
        "advantage": _TRAINER,
    },
)
VERL_TEXT = DumpReader(
    framework="verl",
    files="{step}.jsonl",
    option="`trainer.rollout_data_dir`",
    knows=_knows_text,
    rows=_text_rows,
    absent={
        "tokens": "`skip.rollout_tq.enable: true`: the JSONL is text only",
        "behavior": f"`skip.rollout_tq.enable: true` with {_BEHAVIOR}, or {RECORDER}",
        "proximal": RECORDER,
    },
    notes=("The file has text only, no tokens and no log-probs.",),
)
