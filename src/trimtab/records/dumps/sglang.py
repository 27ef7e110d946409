"""SGLang: answers of `/generate` as they are, one JSON object per line.

An answer has no prompt but its length, unless it was asked for (`return_prompt_token_ids`) or the caller put the request's `input_ids`
beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.errors import RecordError
from trimtab.records.dumps.reader import RECORDER, DumpFile, DumpReader
from trimtab.records.dumps.row import DumpRow, after, float_column, int_column


def _knows(file: DumpFile) -> bool:
    meta = file.first.get("meta_info")
    return "output_ids" in file.first and isinstance(meta, dict) and "finish_reason" in meta


def _rows(answer: Mapping[str, Any], file: DumpFile) -> Iterator[DumpRow]:
    meta, response = answer["meta_info"], int_column(answer["output_ids"])
    given = answer.get("input_ids", answer.get("prompt_token_ids", meta.get("prompt_token_ids")))
    prompt = int(meta["prompt_tokens"]) if given is None else len(given)
    behavior = _log_probs(meta, response)
    finish = meta["finish_reason"]
    yield DumpRow(
        tokens=None if given is None else np.concatenate([int_column(given), response]),
        trained=np.arange(prompt + len(response)) >= prompt,
        behavior=after(prompt, behavior, "behavior"),
        versions=after(prompt, _versions(meta, len(response)), "versions"),
        finish=finish.get("type") if isinstance(finish, dict) else None,
    )


def _log_probs(meta: Mapping[str, Any], response: Any) -> Any:
    """Over the ids that a cut left where the sampling mask was asked for, else before the cut."""
    told, cut = meta.get("output_token_logprobs"), meta.get("output_token_sampling_logprobs")
    if told is None:
        return None
    if [each[1] for each in told] != response.tolist():
        raise RecordError(f"{len(told)} log-probs of others than its {len(response)} tokens")
    if cut is None:
        return float_column([each[0] for each in told])
    ids = meta["output_token_sampling_mask"]
    # Mode support lists a log-prob for each id that was left; the token's is among them.
    pairs = zip(cut, ids, response.tolist(), strict=True)
    return float_column([each[left.index(token)] if isinstance(each, list) else each for each, left, token in pairs])


def _versions(meta: Mapping[str, Any], length: int) -> Any:
    """Of each token; none where weights are called by words."""
    spans = meta.get("weight_versions")
    if not spans or not all(str(span["version"]).isdigit() for span in spans):
        return None
    versions = np.full(length, -1, np.int64)
    for span in spans:
        versions[int(span["start"]) : int(span["end"])] = int(span["version"])
    return versions


SGLANG = DumpReader(
    framework="sglang",
    files="answers of /generate, one per line (.jsonl)",
    option="`return_logprob: true` in the request; its `input_ids` beside each answer",
    knows=_knows,
    rows=_rows,
    absent={
        "tokens": "`input_ids` of the request beside each answer, or `return_prompt_token_ids: true`",
        "proximal": f"--model, or {RECORDER}: a server knows the sampler's log-probs only",
        "reward": RECORDER,
    },
    notes=(
        "SGLang's log-probs are those after temperature and penalties, not renormalised over what top_k, top_p or min_p left, unless the "
        "request had `return_sampling_mask: true`; a greedy token's is that of the plain softmax.",
    ),
)
