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
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from trimtab.errors import RunError
from trimtab.train.messages import Answer, Group, Job, Problem, Score
from trimtab.train.staleness import doomed, waits
from trimtab.train.staleness import late as is_late

NO_AGE = sys.maxsize
"""Of a group without a single token: newer than any version, so never late."""
SLACK = 64
"""Entries of groups that have gone which a heap keeps beside those that are here."""


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


class Buffer:
    """The groups that are neither trained nor dropped yet, and how many were."""

    def __init__(
        self,
        entries: Iterable[Entry] = (),
        *,
        next: int = 0,
        admitted: int = 0,
        trained: int = 0,
        dropped: int = 0,
        ignored: int = 0,
    ) -> None:
        """Empty, or as a checkpoint kept it."""
        self._entries: dict[int, Entry] = {}  # in rising order of number
        self._waiting: list[int] = []
        self._ready: list[int] = []
        self._ages: list[tuple[int, int]] = []  # oldest version and number of the ready ones
        self._counts: Counter[State] = Counter()
        self._begun: Counter[int] = Counter()  # groups under way by the version they were given at
        self._aged: Counter[int] = Counter()  # ready ones by their oldest version
        self._next = next
        self.admitted, self.trained, self.dropped = admitted, trained, dropped
        self.ignored = ignored
        """Results that came twice, or for groups unknown."""
        for entry in entries:
            self._put(entry)

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

    def withdraw(self, number: int) -> None:
        """A waiting group that cannot be sampled goes, as if it had not been admitted; its number is not used again."""
        entry = self._entries.get(number)
        if entry is None or entry.state is not State.WAITING:
            raise RunError(f"A group to be withdrawn needs to be waiting, got group {number}, which is not.")
        self._counts[State.WAITING] -= 1
        self.admitted -= 1
        del self._entries[number]

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
        return sorted(found, key=lambda entry: entry.job.group)

    def _forget_begun(self, entry: Entry) -> None:
        if entry.begun is not None:
            self._begun[entry.begun] -= 1
            if not self._begun[entry.begun]:
                del self._begun[entry.begun]
            entry.begun = None

    def entries(self) -> list[Entry]:
        """All groups that are here, by number."""
        return list(self._entries.values())

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
            heapq.heappush(self._ages, (NO_AGE if entry.oldest is None else entry.oldest, number))
            if entry.oldest is not None:
                self._aged[entry.oldest] += 1
            self._prune()

    def _prune(self) -> None:
        """Forget the groups that have gone, now and then: each of the two heaps is left with theirs while the other is used."""
        most = 2 * self.in_queue + SLACK
        if len(self._ages) > most:
            self._ages = [pair for pair in self._ages if pair[1] in self._entries]
            heapq.heapify(self._ages)
        if len(self._ready) > most:
            self._ready = [number for number in self._ready if number in self._entries]
            heapq.heapify(self._ready)

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
