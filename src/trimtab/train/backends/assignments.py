"""Who samples what: which seat holds which groups, how often one died, and when there is no prospect left.

Plain bookkeeping, without processes, pipes or clocks: any back-end with samplers beside the learner keeps its books here. With all
seats in question, every operation costs a few steps of a heap per group, however many seats there are.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from trimtab.train.messages import Job

SPARED = 10
"""Deaths from outside, before it was ready, that are borne in one seat without a finished group between: four minutes with the pauses."""
LONGEST_PAUSE = 60.0
"""Seconds. Whatever ends samplers again and again, such as want of memory, may need time to go away."""


@dataclass(frozen=True)
class Death:
    """What the books say when a sampler is gone."""

    lost: tuple[int, ...]
    """The groups it held: to be given again."""
    give_up: str | None
    """Why another sampler in its seat has no prospect; None: it has."""
    pause: float = 0.0
    """Seconds until the next one should start: none after a first death, then longer each time."""


@dataclass(eq=False)
class Holding:
    """What the sampler in a seat has to do."""

    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    load: int = 0
    """Responses it is to sample."""
    strikes: int = 0
    """Deaths in this seat since its last finished group."""
    spared: int = 0
    """Further ones, from outside and before it was ready."""


class Assignments:
    """Which seat samples which groups, and the deaths in each."""

    def __init__(self, seats: int, *, hold: int, restarts: int) -> None:
        """`hold`: groups per seat at a time.

        `restarts`: deaths that are borne, in one seat without a finished group between, or with one group in hand.
        """
        self._holdings = [Holding() for _ in range(seats)]
        self._hold, self._restarts = hold, restarts
        self._losses: Counter[int] = Counter()
        self._held = 0
        self._loads: list[tuple[int, int]] = [(0, seat) for seat in range(seats)]
        """A heap of load and seat. One that is not the load of now is passed over; that of now is always there."""

    def __len__(self) -> int:
        return len(self._holdings)

    def room(self, among: Collection[int] | None = None) -> int:
        """Groups that these seats, or all, would still hold."""
        if among is None:
            return max(0, len(self) * self._hold - self._held)
        return max(0, len(among) * self._hold - sum(len(self._holdings[seat].jobs) for seat in among))

    def held(self, seat: int) -> tuple[int, ...]:
        """Numbers of the groups that a seat holds, in the order they were given."""
        return tuple(self._holdings[seat].jobs)

    def is_working(self, seat: int) -> bool:
        """Whether a seat holds anything."""
        return bool(self._holdings[seat].jobs)

    def deal(self, jobs: Sequence[Job], among: Collection[int] | None = None) -> dict[int, list[Job]]:
        """Whole groups to these seats, or all: each to the one with the least to do, the first among equals."""
        heap = self._loads
        if among is not None:
            heap = [(self._holdings[seat].load, seat) for seat in among]
            heapq.heapify(heap)
        dealt: dict[int, list[Job]] = {}
        for job in jobs:
            while heap[0][0] != self._holdings[heap[0][1]].load:
                heapq.heappop(heap)
            load, seat = heap[0]
            holding = self._holdings[seat]
            holding.jobs[job.group] = job
            holding.load = load + job.samples
            heapq.heapreplace(heap, (holding.load, seat))
            dealt.setdefault(seat, []).append(job)
        self._held += len(jobs)
        if among is not None:
            for seat in dealt:
                self._note(seat)
        return dealt

    def finish(self, seat: int, groups: Iterable[int]) -> None:
        """These groups came back from a seat."""
        holding = self._holdings[seat]
        holding.strikes = holding.spared = 0
        for number in groups:
            job = holding.jobs.pop(number, None)
            self._held -= job is not None
            holding.load -= 0 if job is None else job.samples
            self._losses.pop(number, None)
        self._note(seat)

    def lose(self, seat: int, *, spared: bool = False) -> Death:
        """The sampler in a seat is gone; another one starts with nothing in hand.

        `spared`: it was ended from outside before it was ready, which says nothing against it or against what it was to do.
        """
        old = self._holdings[seat]
        lost, strikes, more = tuple(old.jobs), old.strikes + (not spared), old.spared + spared
        self._holdings[seat] = Holding(strikes=strikes, spared=more)
        if not spared:
            self._losses.update(lost)
        self._held -= len(lost)
        self._note(seat)
        exhausted = [number for number in lost if self._losses[number] > self._restarts]
        if strikes > self._restarts:
            return Death(lost, f"sampler {seat} dead {strikes} times in a row without one")
        if exhausted:
            named = ", ".join(str(number) for number in exhausted[:5])
            return Death(lost, f"{self._restarts + 1} deaths with the same groups in hand ({named})")
        if more > SPARED:
            return Death(lost, f"sampler {seat} ended from outside {more} times in a row before it was ready")
        deaths = strikes + more
        return Death(lost, None, 0.0 if deaths == 1 else min(LONGEST_PAUSE, 2.0 ** min(deaths - 2, 10)))

    def _note(self, seat: int) -> None:
        """Enter a load that has changed; what is out of date is thrown away now and then."""
        heapq.heappush(self._loads, (self._holdings[seat].load, seat))
        if len(self._loads) > 4 * len(self) + 64:
            self._loads = [(holding.load, number) for number, holding in enumerate(self._holdings)]
            heapq.heapify(self._loads)
