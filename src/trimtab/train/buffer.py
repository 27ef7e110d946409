"""Whole groups on their way from admission to training.

admit ──► WAITING ──start──► RUNNING ──sample──► SAMPLED ──finish──► READY ──take──► TRAINED
             ▲                  │                                      └────take──► DROPPED (too old)
             └───────lost───────┘

Every group is trained at most once and none is lost: a group whose sampler dies waits again, as the same job. Numbers are
admitted in rising order, so a number below the next one that is not here has been trained or dropped: of those the
buffer keeps nothing.

Every operation costs a few steps of a heap, however many groups are under way: numbers that wait and numbers that are ready are
heaps, ready ones also by their age. A heap may hold a number that has moved on; whoever takes it out looks at the entry.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import RunError
from trimtab.train.kept_heads import head_arrays, heads_from
from trimtab.train.messages import Group, Job, Problem, Sample, SampledHead, Score
from trimtab.train.staleness import doomed, waits
from trimtab.train.staleness import late as is_late

Arrays = dict[str, NDArray[Any]]


SLACK = 64
"""Ages of groups that have gone which are kept beside those that are here."""


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


class Buffer:
    """The groups that are neither trained nor dropped yet, and how many were."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}  # in rising order of number
        self._waiting: list[int] = []
        self._ready: list[int] = []
        self._ages: list[tuple[int, int]] = []  # oldest version and number of the ready ones
        self._counts: Counter[State] = Counter()
        self._begun: Counter[int] = Counter()  # groups under way by the version they were given at
        self._aged: Counter[int] = Counter()  # ready ones by their oldest version
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
        counts = {state.value: self._counts[state] for state in State}
        return counts | {"trained": self.trained, "dropped": self.dropped}

    @property
    def in_flight(self) -> int:
        """Groups being sampled."""
        return self._counts[State.RUNNING]

    @property
    def in_queue(self) -> int:
        """Groups sampled and scored, and not yet trained."""
        return self._counts[State.READY]

    def entry(self, number: int) -> Entry | None:
        """A group that is neither trained nor dropped; None for others."""
        return self._entries.get(number)

    def admit(self, problem: Problem, job: Job) -> None:
        """A new group, waiting to be sampled."""
        if job.group < self._next:
            raise RunError(
                f"A new group needs a number of {self._next} or more, got {job.group}. Numbers never repeat."
            )
        self._put(Entry(problem, job))
        self._next = job.group + 1
        self.admitted += 1

    def waiting(self, most: int | None = None) -> list[Job]:
        """Jobs to be given to a sampler, lowest number first; no more than `most`."""
        wanted = self._counts[State.WAITING] if most is None else min(most, self._counts[State.WAITING])
        found = [self._lowest(self._waiting, State.WAITING) for _ in range(max(wanted, 0))]
        for entry in found:
            heapq.heappush(self._waiting, entry.job.group)
        return [entry.job for entry in found]

    def start(self, groups: Iterable[int], version: int | None = None) -> None:
        """These were given to a sampler, by a learner of this `version`."""
        for number in groups:
            entry = self._entries.get(number)
            if entry is None or entry.state is not State.WAITING:
                state = "trained, dropped or unknown" if entry is None else entry.state.value
                raise RunError(f"A group to be sampled needs to be waiting, got group {number}, which is {state}.")
            self._move(entry, State.RUNNING)
            entry.attempts += 1
            if version is not None:
                entry.begun = version
                self._begun[version] += 1

    def sample(self, group: Group) -> bool:
        """A result, to be scored; False for one that came before or is not known, which changes nothing but `ignored`.

        A result of a sampler that was taken for dead counts: the first to come is kept, whoever made it.
        """
        entry = self._entries.get(group.job.group)
        if entry is None or entry.state in (State.SAMPLED, State.READY):
            self.ignored += 1
            return False
        self._move(entry, State.SAMPLED)
        return True

    def finish(self, group: Group, scores: Iterable[Score], texts: Iterable[str] = ()) -> bool:
        """A result, scored, which `sample` may have announced; False for one that was scored before or is not known."""
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
        self._forget_begun(entry)
        entry.group, entry.scores, entry.texts, entry.oldest = group, scores, tuple(texts), group.oldest
        self._move(entry, State.READY)
        return True

    def lost(self, groups: Iterable[int]) -> None:
        """Their sampler died: those still running wait again."""
        for number in groups:
            entry = self._entries.get(number)
            if entry is not None and entry.state is State.RUNNING:
                self._forget_begun(entry)
                self._move(entry, State.WAITING)

    def take(
        self,
        count: int,
        version: int,
        max_staleness: int,
        late: Literal["drop", "train"] = "drop",
        max_dropped: float = 1.0,
    ) -> list[Entry] | None:
        """The `count` lowest-numbered groups that are ready, now trained; None while there are too few.

        With late="drop", every ready group that is too old for a learner of this `version` is dropped first, also where
        too few remain: its place is what lets a new one in. With a `max_dropped` below 1 the oldest are taken, and there is
        nothing to take while going on would drop more than that share of all groups, now or later.
        """
        while late == "drop" and self._ages and is_late(self._ages[0][0], version, max_staleness):
            entry = self._entries.get(heapq.heappop(self._ages)[1])
            if entry is not None and entry.state is State.READY:
                self._leave(entry, State.DROPPED)
                self.dropped += 1
        if self.in_queue < count:
            return None
        if late == "drop" and max_dropped < 1:
            lost = self.doomed(count, version, max_staleness)
            gone = sum(number for begun, number in self._begun.items() if is_late(begun, version, max_staleness))
            if waits(lost, self.trained, self.dropped + gone, max_dropped):
                return None
            taken = self._oldest(count)
        else:
            taken = [self._lowest(self._ready, State.READY) for _ in range(count)]
        for entry in taken:
            self._leave(entry, State.TRAINED)
        self.trained += count
        return taken

    def doomed(self, count: int, version: int, max_staleness: int) -> int:
        """Groups that would be late, sooner or later, if a batch were taken now; see `staleness.doomed`."""
        return doomed(self._begun, self._aged, version, count, max_staleness)

    def _oldest(self, count: int) -> list[Entry]:
        """So many ready groups, in the order of their numbers: those with the oldest tokens, the lowest numbers among equals."""
        found: list[Entry] = []
        while self._ages and len(found) < count:
            entry = self._entries.get(heapq.heappop(self._ages)[1])
            if entry is not None and entry.state is State.READY:
                found.append(entry)
        if len(found) < count:  # groups without a single token have no age
            known = {entry.job.group for entry in found}
            ready = sorted(number for number, entry in self._entries.items() if entry.state is State.READY)
            found += [self._entries[number] for number in ready if number not in known][: count - len(found)]
        return sorted(found, key=lambda entry: entry.job.group)

    def _forget_begun(self, entry: Entry) -> None:
        if entry.begun is not None:
            self._begun[entry.begun] -= 1
            if not self._begun[entry.begun]:
                del self._begun[entry.begun]
            entry.begun = None

    def snapshot(self) -> tuple[dict[str, Any], Arrays]:
        """All there is to save: values for JSON, and arrays. Groups being sampled or scored are saved as waiting."""
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
        return values, arrays | head_arrays(samples)

    @classmethod
    def restore(cls, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> Buffer:
        """The buffer that was saved. Its waiting groups lack the further fields of their problems: see `renew`."""
        buffer = cls()
        buffer._next, buffer.admitted = values["next"], values["admitted"]
        buffer.trained, buffer.dropped, buffer.ignored = values["trained"], values["dropped"], values["ignored"]
        prompt = token = 0
        heads = iter(
            heads_from(arrays, [row["length"] for saved in values["entries"] for row in saved["samples"] or ()])
        )
        for saved in values["entries"]:
            end = prompt + saved["job"]["prompt"]
            job = Job(**saved["job"] | {"prompt": arrays["prompts"][prompt:end].copy()})
            prompt = end
            text = {name: saved["problem"][name] for name in ("id", "prompt", "answer")}
            entry = Entry(Problem(**text), job, attempts=saved["attempts"])
            if saved["samples"] is not None:
                entry.group, token = _group(job, saved["samples"], arrays, token, heads)
                entry.scores, entry.state = tuple(Score(**score) for score in saved["scores"]), State.READY
                entry.oldest = entry.group.oldest
            buffer._put(entry)
        return buffer

    def renew(self, made: Callable[[int], tuple[Problem, Job]]) -> None:
        """Have every waiting group made anew from its number: of what it is to be judged by, a checkpoint keeps nothing."""
        for number, entry in self._entries.items():
            if entry.state is State.WAITING:
                entry.problem, entry.job = made(number)

    def _put(self, entry: Entry) -> None:
        self._entries[entry.job.group] = entry
        self._note(entry)

    def _move(self, entry: Entry, state: State) -> None:
        self._counts[entry.state] -= 1
        entry.state = state
        self._note(entry)

    def _note(self, entry: Entry) -> None:
        """Enter it where its state is looked for."""
        self._counts[entry.state] += 1
        number = entry.job.group
        if entry.state is State.WAITING:
            heapq.heappush(self._waiting, number)
        elif entry.state is State.READY:
            heapq.heappush(self._ready, number)
            if entry.oldest is not None:
                heapq.heappush(self._ages, (entry.oldest, number))
                self._aged[entry.oldest] += 1
            if len(self._ages) > 2 * self.in_queue + SLACK:  # those of trained groups, where none is ever late
                self._ages = [pair for pair in self._ages if pair[1] in self._entries]
                heapq.heapify(self._ages)

    def _lowest(self, numbers: list[int], state: State) -> Entry:
        """Take out the lowest number whose group is in that state, each once; there has to be one."""
        while True:
            number = heapq.heappop(numbers)
            while numbers and numbers[0] == number:  # a group that waited before stands there twice
                heapq.heappop(numbers)
            entry = self._entries.get(number)
            if entry is not None and entry.state is state:
                return entry

    def _leave(self, entry: Entry, state: State) -> None:
        """A ready group goes for good."""
        self._counts[entry.state] -= 1
        if entry.oldest is not None:
            self._aged[entry.oldest] -= 1
            if not self._aged[entry.oldest]:
                del self._aged[entry.oldest]
        entry.state = state
        del self._entries[entry.job.group]


COLUMNS = {"tokens": np.int32, "behavior": np.float32, "raw": np.float32, "versions": np.int32}
"""Arrays of a sample and their types: saved one after the other, in one array each."""


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
