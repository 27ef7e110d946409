"""The buffer in its plain form, which looks through all groups at every question: what the one with indices is held to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from trimtab.errors import RunError
from trimtab.train.buffer import Entry, State
from trimtab.train.messages import Group, Job, Problem, Score
from trimtab.train.staleness import late as is_late


class PlainBuffer:
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

    def _in(self, state: State) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.state is state]

    def _leave(self, entries: Iterable[Entry], state: State) -> None:
        for entry in entries:
            entry.state = state
            del self._entries[entry.job.group]


def _late(entry: Entry, version: int, max_staleness: int) -> bool:
    """Whether a ready entry is too old; one without a single token has nothing to be old."""
    assert entry.group is not None
    oldest = entry.group.oldest
    return oldest is not None and is_late(oldest, version, max_staleness)
