"""Samplers beside the learner, wherever they run: jobs are dealt to seats, what comes back is gathered, the dead are replaced.

give ──Order──► seat ──► sampler ──Done──► seat ──► inbox ──► arrived
publish ──► the weights' own way ──► sampler
"""

from __future__ import annotations

import math
import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol, runtime_checkable

from trimtab.errors import RunError
from trimtab.train.backends.assignments import Assignments
from trimtab.train.backends.protocol import Arrived
from trimtab.train.backends.sampler import Done, Failed, Message, Order, Ready
from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import NamedTensors, Publisher


@dataclass(frozen=True)
class SamplerExit:
    """How a sampler ended."""

    cause: str
    """What follows its name: "was ended by SIGKILL"."""
    log: str
    """Where to look."""
    tail: str
    """How that ends."""
    traceback: str | None = None
    is_from_outside: bool = False
    """Whether somebody else ended it, or the system did: it may have had nothing wrong with it."""


@runtime_checkable
class Seat(Protocol):
    """A sampler from its start to its end. What it says goes to the back-end's inbox; None is its last word."""

    number: int
    ready: bool
    """Whether it has said that it is."""

    def send(self, order: Order) -> None:
        """Now, or when it is ready; never waits for long. To a dead one, nothing: its end is seen elsewhere."""
        ...

    def hear(self, message: Ready | Failed) -> None:
        """What it said about itself."""
        ...

    def look(self, now: float, *, working: bool) -> None:
        """See to it that one that has work and shows no life is ended, and that its end becomes known."""
        ...

    def reap(self) -> SamplerExit:
        """After its last word: give back what is kept of it."""
        ...


Inbox = SimpleQueue[tuple[Seat, Message | None]]
"""What samplers said; None is the last from each."""


TICK = 1.0
"""Seconds between two looks at samplers that say nothing."""


class SamplerPool(ABC):
    """A back-end over seats. A sampler that dies or hangs is replaced; its groups are reported lost."""

    def __init__(
        self,
        assignments: Assignments,
        publisher: Publisher,
        *,
        end: Callable[[Sequence[Seat]], None],
        tick: float = TICK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`end` ends samplers, by force where they stay; it is called also where nobody closes the back-end."""
        self._assignments, self._publisher = assignments, publisher
        self._tick, self._clock, self._next_look = tick, clock, float("-inf")
        self.seats: list[Seat] = []
        """Who sits where, by number."""
        self._inbox: Inbox = SimpleQueue()
        self._resting: dict[int, float] = {}
        """Seats whose sampler died and is still there to be seen, and when the next one starts."""
        self._kept: list[Job] = []
        """Jobs given while every seat rested."""
        self._end = weakref.finalize(self, _end, end, self.seats, os.getpid())

    @abstractmethod
    def _take_seat(self, number: int, inbox: Inbox) -> None:
        """Start a sampler, without waiting for it. It is among `seats` before it runs, so that close() finds it in any case."""

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Publish the weights and start the samplers, without waiting for them."""
        if self.seats or not self._end.alive:
            raise RunError("A back-end needs to begin once, got a second begin(). Make a new one.")
        self._publisher.publish(weights, version)
        for number in range(len(self._assignments)):
            self._take_seat(number, self._inbox)

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Samplers take it over between two steps."""
        self._publisher.publish(weights, version)

    def room(self) -> int:
        """Groups that samplers would still hold."""
        return max(0, self._assignments.room(self._among) - len(self._kept))

    def give(self, jobs: Sequence[Job]) -> None:
        """Deal whole groups, each to the sampler with the least to do; what one gets, it gets at once."""
        self._check_begun()
        among = self._among
        if among == []:
            self._kept += jobs
            return
        for number, share in self._assignments.deal(jobs, among).items():
            self.seats[number].send(Order(tuple(share), self._publisher.version))

    def arrived(self, timeout: float, stop: Callable[[], bool] = lambda: False) -> Arrived:
        """Finished groups; groups of dead samplers, which are replaced here; what to say about it."""
        self._check_begun()
        groups: list[Group] = []
        lost: list[int] = []
        notes: list[str] = []
        deadline = self._clock() + timeout
        while True:
            left = deadline - self._clock()
            rest = min(self._resting.values(), default=math.inf) - self._clock()
            for seat, message in self._messages(min(left, self._tick, rest)):
                if isinstance(message, Done):
                    self._assignments.finish(seat.number, [group.job.group for group in message.groups])
                    groups += message.groups
                elif message is not None:
                    seat.hear(message)
                elif self.seats[seat.number] is seat and seat.number not in self._resting:
                    lost += self._assignments.held(seat.number)
                    notes.append(self._replace(seat))
            self._end_rests()
            self._look()
            if groups or lost or notes or left <= 0 or stop():
                return Arrived(tuple(groups), tuple(lost), tuple(notes))

    def _look(self) -> None:
        """At every sampler, a few times per tick: with thousands of them, not for every message."""
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + self._tick / 8
            for seat in self.present:
                seat.look(now, working=self._assignments.is_working(seat.number))

    def close(self) -> None:
        """Let samplers go, then end them."""
        self._end()
        self.seats.clear()
        self._publisher.close()

    @property
    def present(self) -> list[Seat]:
        """Those whose sampler is there, or starts."""
        return [seat for seat in self.seats if seat.number not in self._resting]

    @property
    def _among(self) -> list[int] | None:
        """Numbers of the seats that work may be dealt to; None: all."""
        return [seat.number for seat in self.present] if self._resting else None

    def _end_rests(self) -> None:
        """Start the samplers whose time has come."""
        now = self._clock()
        for number in [number for number, due in self._resting.items() if now >= due]:
            del self._resting[number]
            self._take_seat(number, self._inbox)
            kept, self._kept = self._kept, []
            if kept:
                self.give(kept)

    def _check_begun(self) -> None:
        if not self.seats:
            raise RunError("A back-end needs begin() before work and none after close(), got no samplers.")

    def _messages(self, wait: float) -> Iterator[tuple[Seat, Message | None]]:
        """Those that are there; waits for the first. None means that the sampler is gone."""
        try:
            yield self._inbox.get(timeout=max(0.0, wait))
            while True:
                yield self._inbox.get_nowait()
        except Empty:
            return

    def _replace(self, seat: Seat) -> str:
        """Put a new sampler in a dead one's seat, now or later; returns what to tell the user. Raises where that has no prospect."""
        ended = seat.reap()
        death = self._assignments.lose(seat.number, spared=ended.is_from_outside and not seat.ready)
        said = f"Sampler {seat.number} {ended.cause}."
        if death.give_up is not None:
            raise RunError(
                f"Sampling needs samplers that live to finish a group, got {death.give_up}. {said} "
                f"Look at {ended.log}, which ends:\n{ended.tail}"
            )
        if death.pause:
            self._resting[seat.number] = self._clock() + death.pause
            when = f"Restarted in {death.pause:g} s"
        else:
            self._take_seat(seat.number, self._inbox)
            when = "Restarted"
        trace = f"\n{ended.traceback}" if ended.traceback else ""
        return f"{said} {when}; {len(death.lost)} groups are sampled again.{trace}"


def _end(end: Callable[[Sequence[Seat]], None], seats: list[Seat], owner: int) -> None:
    if os.getpid() == owner:  # a fork of the learner that ends owns no samplers
        end(seats)
