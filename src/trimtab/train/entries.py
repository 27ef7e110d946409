"""One group with all that belongs to it, and many of them as a checkpoint keeps them: values for JSON, and arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.train.kept_heads import head_arrays, heads_from
from trimtab.train.messages import Answer, Group, Job, Problem, Sample, SampledHead, Score

Arrays = dict[str, NDArray[Any]]

COLUMNS = {"tokens": np.int32, "behavior": np.float32, "raw": np.float32, "versions": np.int32}
"""Arrays of a sample and their types: saved one after the other, in one array each."""


class State(Enum):
    """Where a group is."""

    WAITING = "waiting"
    RUNNING = "running"
    SAMPLED = "sampled"
    READY = "ready"
    TRAINED = "trained"
    DROPPED = "dropped"


@dataclass(eq=False)
class Entry:
    """One group and all that belongs to it."""

    problem: Problem
    job: Job
    state: State = State.WAITING
    group: Group | None = None
    scores: tuple[Score, ...] = ()
    texts: tuple[str, ...] = ()
    """The responses as text; not saved, so empty in an entry that comes from a checkpoint."""
    attempts: int = 0
    """How often its sampling was begun."""
    oldest: int | None = None
    """The oldest version among its tokens, once it is ready; None where it has none."""
    begun: int | None = None
    """Version at which it was given to a sampler, while it is under way: no token of it is older."""

    def answers(self) -> list[Answer]:
        """What the learner gets of it, once it is ready."""
        assert self.group is not None
        pairs = zip(self.group.samples, self.scores, strict=True)
        return [Answer(self.job.group, place, self.job.prompt, *pair) for place, pair in enumerate(pairs)]


def pack_entries(entries: Sequence[Entry]) -> tuple[list[dict[str, Any]], Arrays]:
    """All there is to save of them. Those being sampled or scored are saved as waiting."""
    samples = [sample for entry in entries if entry.group for sample in entry.group.samples]
    arrays: Arrays = {"prompts": _joined([entry.job.prompt for entry in entries], np.int32)}
    for name, kind in COLUMNS.items():
        arrays[name] = _joined([_column(sample, name) for sample in samples], kind)
    return [_values(entry) for entry in entries], arrays | head_arrays(samples)


def unpack_entries(saved: Sequence[Mapping[str, Any]], arrays: Mapping[str, Any]) -> Iterator[Entry]:
    """Those that were saved, waiting or ready. Their problems lack all but the text."""
    prompt = token = 0
    heads = iter(heads_from(arrays, [row["length"] for one in saved for row in one["samples"] or ()]))
    for one in saved:
        end = prompt + one["job"]["prompt"]
        job = Job(**one["job"] | {"prompt": arrays["prompts"][prompt:end].copy()})
        prompt = end
        text = {name: one["problem"][name] for name in ("id", "prompt", "answer")}
        entry = Entry(Problem(**text), job, attempts=one["attempts"])
        if one["samples"] is not None:
            entry.group, token = _group(job, one["samples"], arrays, token, heads)
            entry.scores, entry.state = tuple(Score(**score) for score in one["scores"]), State.READY
            entry.oldest = entry.group.oldest
        yield entry


def _values(entry: Entry) -> dict[str, Any]:
    """What JSON keeps of an entry; the prompt is kept by its length, and fields of the user's own, which JSON may not hold, not at all."""
    job, problem = entry.job, entry.problem
    return {
        "problem": {
            "id": problem.id,
            "prompt": problem.prompt,
            "answer": problem.answer,
        },
        "job": {
            "group": job.group,
            "prompt": len(job.prompt),
            "samples": job.samples,
            "seed": job.seed,
            "max_tokens": job.max_tokens,
        },
        "attempts": entry.attempts,
        "samples": None
        if entry.group is None
        else [{"length": len(sample.tokens), "finish": sample.finish} for sample in entry.group.samples],
        "scores": [
            {
                "reward": score.reward,
                "correct": score.correct,
                "parts": dict(score.parts),
                "failed": score.failed,
            }
            for score in entry.scores
        ],
    }


def _group(
    job: Job,
    saved: list[dict[str, Any]],
    arrays: Mapping[str, NDArray[Any]],
    start: int,
    heads: Iterator[SampledHead | None],
) -> tuple[Group, int]:
    """The group whose tokens begin at `start`, and where the next one's begin; `heads` gives that of each response."""
    samples: list[Sample] = []
    for row in saved:
        end = start + row["length"]
        columns = {name: arrays[name][start:end].copy() for name in COLUMNS}
        samples.append(Sample(**columns, finish=row["finish"], head=next(heads)))
        start = end
    return Group(job, tuple(samples)), start


def _column(sample: Sample, name: str) -> NDArray[Any]:
    """An array of a sample; log-probs that its engine did not give are NaN."""
    found: NDArray[Any] | None = getattr(sample, name)
    return np.full(len(sample.tokens), np.nan, np.float32) if found is None else found


def _joined(parts: list[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    """One array of all parts; an empty one where there are none."""
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind, copy=False)
