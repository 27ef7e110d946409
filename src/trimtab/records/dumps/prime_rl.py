"""prime-rl and verifiers: traces, a graph of messages each, and what prime-rl's trainer wrote beside them.

A branch is a path from the first message to a last one; its tokens are those of its messages, end to end. A message's log-probs
are compact, one for each True of its mask. An annotation's streams run over the whole branch, null where nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import RecordError
from trimtab.records.dumps.jsonl import json_lines
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader
from trimtab.records.dumps.row import DumpRow, float_column, int_column, mask_column

_STREAMS = {"current": "trainer_logprobs", "advantage": "advantages"}
Streams = dict[str, dict[int, dict[str, Any]]]


def _knows_export(file: DumpFile) -> bool:
    return {"token_ids", "loss_mask", "inference_logprobs", "trainer_logprobs"} <= file.first.keys()


def _export_rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    behavior, current = float_column(record["inference_logprobs"]), float_column(record["trainer_logprobs"])
    current[:1] = np.nan  # of the token before the sequence, which belongs to another
    rewards = [value for value in record.get("rewards") or () if value is not None]
    yield DumpRow(
        tokens=int_column(record["token_ids"]),
        trained=mask_column(record["loss_mask"]),
        behavior=behavior,
        current=current,
        advantage=float_column(record["advantages"]) if record.get("advantages") is not None else None,
        reward=float(rewards[0]) if rewards else None,
        step=int(record["step"]),
        source=f"rank {record.get('rank', 0)}",
    )


def _knows_traces(file: DumpFile) -> bool:
    return "nodes" in file.first or any("nodes" in trace for trace in _traces(file.first))


def _knows_annotated(file: DumpFile) -> bool:
    return _knows_traces(file) and _annotations_of(file.path) is not None


def _trace_rows(record: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    folder = _annotations_of(file.path)
    updates = {} if folder is None else _updates(folder, _sizes(folder))
    group = (record.get("group") or {}).get("id") if isinstance(record.get("group"), dict) else None
    for trace in _traces(record):
        info = trace.get("info") or {}
        if info.get("kind") == "eval":
            continue
        branches = updates.get(str(trace.get("id")), {})
        for index, path in enumerate(_paths(trace["nodes"])):
            nodes = [trace["nodes"][number] for number in path]
            if any(any(node.get("mask") or ()) for node in nodes):
                yield _branch(nodes, branches.get(index, {}), trace, group)


def _branch(nodes: list[dict[str, Any]], streams: Mapping[str, Any], trace: Mapping[str, Any], group: Any) -> DumpRow:
    tokens = np.concatenate([int_column(node.get("token_ids") or []) for node in nodes])
    sampled = np.concatenate([mask_column(node.get("mask") or []) for node in nodes])
    if len(sampled) != len(tokens):
        raise RecordError(f"a mask of {len(sampled)} values for {len(tokens)} tokens")
    known = {"behavior": _expand(nodes, "logprobs", sampled)}
    for name, key in _STREAMS.items():
        known[name] = _stream(streams[key], len(tokens)) if key in streams else _expand(nodes, key, sampled)
    trained = sampled
    if known["current"] is not None:  # the trainer says null where its loss did not act
        trained = sampled & np.isfinite(known["current"])
    info = trace.get("info") or {}
    if known["advantage"] is None and isinstance(info.get("advantage"), int | float):
        known["advantage"] = np.full(len(tokens), float(info["advantage"]), np.float32)
    finish = trace.get("stop_condition") or nodes[-1].get("finish_reason")
    return DumpRow(
        tokens=tokens,
        trained=trained,
        group=group,
        reward=_reward(trace),
        step=int(info["trained_at_step"]) if isinstance(info.get("trained_at_step"), int) else None,
        finish=None if finish is None else str(finish),
        **known,
    )


def _expand(nodes: list[dict[str, Any]], key: str, sampled: Any) -> Any:
    """Compact values at the places of their True masks; None where no message has any."""
    if not any(node.get(key) for node in nodes):
        return None
    parts: list[Any] = []
    for node in nodes:
        count = int(mask_column(node.get("mask") or []).sum())
        values = float_column(node.get(key) or [])
        if len(values) not in (0, count):
            raise RecordError(f"{len(values)} {key} for {count} sampled tokens of a message")
        parts.append(values if len(values) else np.full(count, np.nan, np.float32))
    whole = np.full(len(sampled), np.nan, np.float32)
    whole[sampled] = np.concatenate(parts)
    return whole


def _stream(values: Any, length: int) -> Any:
    """A stream over the branch; one that was cut short knows nothing of the rest."""
    whole = np.full(length, np.nan, np.float32)
    whole[: len(values)] = values[:length]
    return whole


def _reward(trace: Mapping[str, Any]) -> float | None:
    """The weighted sum of its rewards; verifiers on its own says `reward`."""
    parts = trace.get("rewards")
    if isinstance(parts, dict) and parts:
        scores = [part for part in parts.values() if isinstance(part, dict)]
        if scores:
            return float(
                sum((part.get("score") or 0) * (1 if part.get("weight") is None else part["weight"]) for part in scores)
            )
        return float(sum(value for value in parts.values() if isinstance(value, int | float)))
    return float(trace["reward"]) if isinstance(trace.get("reward"), int | float) else None


def _traces(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The traces of an episode; a trace of verifiers stands for itself."""
    if "nodes" in record:
        return [dict(record)]
    found = record.get("traces")
    return [trace for trace in found if isinstance(trace, dict)] if isinstance(found, list) else []


def _paths(nodes: list[dict[str, Any]]) -> list[list[int]]:
    """Root to leaf, in the order of the leaves: the number of a branch is its place here."""
    parents = {node.get("parent") for node in nodes}
    paths: list[list[int]] = []
    for leaf in (number for number in range(len(nodes)) if number not in parents):
        path: list[int] = []
        at: Any = leaf
        while isinstance(at, int) and 0 <= at < len(nodes) and at not in path:
            path.append(at)
            at = nodes[at].get("parent")
        paths.append(path[::-1])
    return paths


def _annotations_of(path: Path) -> Path | None:
    """The folder beside a stream, which is a file or a folder of numbered ones."""
    folders = (folder / "annotations" for folder in (path.parent, path.parent.parent))
    return next((folder for folder in folders if folder.is_dir()), None)


def _sizes(folder: Path) -> int:
    """What changes when annotations are added."""
    return sum(path.stat().st_size for path in folder.rglob("*.jsonl*"))


@lru_cache(maxsize=1)
def _updates(folder: Path, size: int) -> Streams:
    """Trace, branch, stream: of two that say the same thing the later one counts. Read once while the folder stays as it is."""
    updates: Streams = {}
    for path in sorted(folder.rglob("*.jsonl*")):
        if path.name.endswith((".index.jsonl", ".tmp")) or "index" in path.stem:
            continue
        for record in json_lines(path):
            if isinstance(record, RecordError) or not record.get("trace_id"):
                continue
            for branch in record.get("branches") or ():
                streams = {key: float_column(branch[key]) for key in _STREAMS.values() if branch.get(key)}
                updates.setdefault(str(record["trace_id"]), {}).setdefault(int(branch["index"]), {}).update(streams)
    return updates


PRIME_RL_EXPORT = DumpReader(
    framework="prime-rl",
    files="token_exports/step_{N}/rank_{R}.jsonl",
    option="`trainer.enable_token_export` (until August 2026)",
    knows=_knows_export,
    rows=_export_rows,
    absent={"versions": RECORDER, "group": RECORDER},
)
PRIME_RL_TRACES = DumpReader(
    framework="prime-rl",
    files="monitors/file/traces/stream.jsonl, annotations/ beside it",
    option="`[monitors.file]`",
    knows=_knows_annotated,
    rows=_trace_rows,
    absent={
        "current": "the annotations of the trainer, which its file monitor writes beside the traces",
        "versions": RECORDER,
    },
    notes=("Log-probs are rounded to `float_decimals` of the file monitor: gaps below that are rounding.",),
)
VERIFIERS = DumpReader(
    framework="verifiers",
    files="traces as JSON Lines",
    option="`Trace.to_record`, results of an evaluation",
    knows=_knows_traces,
    rows=_trace_rows,
    absent={
        "current": "prime-rl's annotations, or --model",
        "proximal": f"--model, or {RECORDER}",
        "versions": RECORDER,
    },
)
