"""Whole groups on their way from admission to training.

admit ──► WAITING ──start──► RUNNING ──finish──► READY ──take──► TRAINED
             ▲                  │                  └────take──► DROPPED (too old)
             └───────lost───────┘

Every group is trained at most once and none is lost: a group whose sampler dies waits again, as the same job. Numbers are
admitted in rising order, so a number below the next one that is not here has been trained or dropped: of those the
buffer keeps nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import RunError
from trimtab.train.messages import Group, Job, Problem, Sample, Score
from trimtab.train.staleness import late as is_late

Arrays = dict[str, NDArray[Any]]


class State(Enum):
    """Where a group is."""

    WAITING = "waiting"
    RUNNING = "running"
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


class Buffer:
    """The groups that are neither trained nor dropped yet, and how many were."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}  # in rising order of number
        self._next = 0
        self.admitted = 0
        self.trained = 0
        self.dropped = 0
        self.ignored = 0
        """Results that came twice, or for groups unknown."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def next(self) -> int:
        """The least number the next group may have."""
        return self._next

    @property
    def counts(self) -> dict[str, int]:
        """Groups by state; trained and dropped ones since the start of the run."""
        counts = {state.value: 0 for state in State}
        for entry in self._entries.values():
            counts[entry.state.value] += 1
        return counts | {"trained": self.trained, "dropped": self.dropped}

    @property
    def in_flight(self) -> int:
        """Groups being sampled."""
        return len(self._in(State.RUNNING))

    @property
    def in_queue(self) -> int:
        """Groups sampled and not yet trained."""
        return len(self._in(State.READY))

    def entry(self, number: int) -> Entry | None:
        """A group that is neither trained nor dropped; None for others."""
        return self._entries.get(number)

    def admit(self, problem: Problem, job: Job) -> None:
        """A new group, waiting to be sampled."""
        if job.group < self._next:
            raise RunError(
                f"A new group needs a number of {self._next} or more, got {job.group}. Numbers never repeat."
            )
        self._entries[job.group] = Entry(problem, job)
        self._next = job.group + 1
        self.admitted += 1

    def waiting(self) -> list[Job]:
        """Jobs to be given to a sampler, lowest number first."""
        return [entry.job for entry in self._in(State.WAITING)]

    def start(self, groups: Iterable[int]) -> None:
        """These were given to a sampler."""
        for number in groups:
            entry = self._entries.get(number)
            if entry is None or entry.state is not State.WAITING:
                state = "trained, dropped or unknown" if entry is None else entry.state.value
                raise RunError(f"A group to be sampled needs to be waiting, got group {number}, which is {state}.")
            entry.state = State.RUNNING
            entry.attempts += 1

    def finish(self, group: Group, scores: Iterable[Score], texts: Iterable[str] = ()) -> bool:
        """A result, scored; False for one that came before or is not known, which changes nothing but `ignored`.

        A result of a sampler that was taken for dead counts: the first to come is kept, whoever made it.
        """
        entry = self._entries.get(group.job.group)
        if entry is None or entry.state is State.READY:
            self.ignored += 1
            return False
        scores = tuple(scores)
        if not entry.job.samples == len(group.samples) == len(scores):
            raise RunError(
                f"Group {group.job.group} needs {entry.job.samples} samples and as many scores, "
                f"got {len(group.samples)} and {len(scores)}."
            )
        entry.group, entry.scores, entry.texts, entry.state = group, scores, tuple(texts), State.READY
        return True

    def lost(self, groups: Iterable[int]) -> None:
        """Their sampler died: those still running wait again."""
        for number in groups:
            entry = self._entries.get(number)
            if entry is not None and entry.state is State.RUNNING:
                entry.state = State.WAITING

    def take(
        self, count: int, version: int, max_staleness: int, late: Literal["drop", "train"] = "drop"
    ) -> list[Entry] | None:
        """The `count` lowest-numbered groups that are ready, now trained; None while there are too few.

        With late="drop", every ready group that is too old for a learner of this `version` is dropped first, also where
        too few remain: its place is what lets a new one in.
        """
        ready = self._in(State.READY)
        if late == "drop":
            stale = [entry for entry in ready if _late(entry, version, max_staleness)]
            self._leave(stale, State.DROPPED)
            self.dropped += len(stale)
            ready = [entry for entry in ready if entry.state is State.READY]
        if len(ready) < count:
            return None
        self._leave(ready[:count], State.TRAINED)
        self.trained += count
        return ready[:count]

    def snapshot(self) -> tuple[dict[str, Any], Arrays]:
        """All there is to save: values for JSON, and arrays. Groups being sampled are saved as waiting."""
        entries = list(self._entries.values())
        samples = [sample for entry in entries if entry.group for sample in entry.group.samples]
        values: dict[str, Any] = {
            "next": self._next,
            "admitted": self.admitted,
            "trained": self.trained,
            "dropped": self.dropped,
            "ignored": self.ignored,
            "entries": [_values(entry) for entry in entries],
        }
        arrays: Arrays = {"prompts": _joined([entry.job.prompt for entry in entries], np.int32)}
        for name, kind in COLUMNS.items():
            arrays[name] = _joined([_column(sample, name) for sample in samples], kind)
        return values, arrays

    @classmethod
    def restore(cls, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> Buffer:
        """The buffer that was saved. Its waiting groups lack the further fields of their problems: see `renew`."""
        buffer = cls()
        buffer._next, buffer.admitted = values["next"], values["admitted"]
        buffer.trained, buffer.dropped, buffer.ignored = values["trained"], values["dropped"], values["ignored"]
        prompt = token = 0
        for saved in values["entries"]:
            end = prompt + saved["job"]["prompt"]
            job = Job(**saved["job"] | {"prompt": arrays["prompts"][prompt:end].copy()})
            prompt = end
            text = {name: saved["problem"][name] for name in ("id", "prompt", "answer")}
            entry = Entry(Problem(**text), job, attempts=saved["attempts"])
            if saved["samples"] is not None:
                entry.group, token = _group(job, saved["samples"], arrays, token)
                entry.scores, entry.state = tuple(Score(**score) for score in saved["scores"]), State.READY
            buffer._entries[job.group] = entry
        return buffer

    def renew(self, made: Callable[[int], tuple[Problem, Job]]) -> None:
        """Have every waiting group made anew from its number: of what it is to be judged by, a checkpoint keeps nothing."""
        for number, entry in self._entries.items():
            if entry.state is State.WAITING:
                entry.problem, entry.job = made(number)

    def _in(self, state: State) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.state is state]

    def _leave(self, entries: Iterable[Entry], state: State) -> None:
        for entry in entries:
            entry.state = state
            del self._entries[entry.job.group]


COLUMNS = {"tokens": np.int32, "behavior": np.float32, "raw": np.float32, "versions": np.int32}
"""Arrays of a sample and their types: saved one after the other, in one array each."""


def _late(entry: Entry, version: int, max_staleness: int) -> bool:
    """Whether a ready entry is too old; one without a single token has nothing to be old."""
    assert entry.group is not None
    oldest = entry.group.oldest
    return oldest is not None and is_late(oldest, version, max_staleness)


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


def _group(job: Job, saved: list[dict[str, Any]], arrays: Mapping[str, NDArray[Any]], start: int) -> tuple[Group, int]:
    """The group whose tokens begin at `start`, and where the next one's begin."""
    samples: list[Sample] = []
    for row in saved:
        end = start + row["length"]
        samples.append(Sample(**{name: arrays[name][start:end].copy() for name in COLUMNS}, finish=row["finish"]))
        start = end
    return Group(job, tuple(samples)), start


def _column(sample: Sample, name: str) -> NDArray[Any]:
    """An array of a sample; log-probs that its engine did not give are NaN."""
    found: NDArray[Any] | None = getattr(sample, name)
    return np.full(len(sample.tokens), np.nan, np.float32) if found is None else found


def _joined(parts: list[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    """One array of all parts; an empty one where there are none."""
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind, copy=False)
