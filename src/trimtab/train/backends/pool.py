"""Samplers beside the learner, wherever they run: jobs are dealt to seats, what comes back is gathered, the dead are replaced.

give ──Order──► seat ──► sampler ──Done──► seat ──► inbox ──► arrived
publish ──► the weights' own way ──► sampler
"""

from __future__ import annotations

import os
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from queue import Empty, SimpleQueue

from trimtab.errors import RunError
from trimtab.train.backends.fleet import Fleet
from trimtab.train.backends.protocol import Arrived
from trimtab.train.backends.seat import Inbox, Seat
from trimtab.train.backends.serve import Done, Message, Order
from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import NamedTensors, Publisher

TICK = 1.0
"""Seconds between two looks at samplers that say nothing."""


class SamplerPool(ABC):
    """A back-end over seats. A sampler that dies or hangs is replaced; its groups are reported lost."""

    def __init__(
        self,
        fleet: Fleet,
        publisher: Publisher,
        *,
        end: Callable[[Sequence[Seat]], None],
        tick: float = TICK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`end` ends samplers, by force where they stay; it is called also where nobody closes the back-end."""
        self._fleet, self._publisher = fleet, publisher
        self._tick, self._clock, self._next_look = tick, clock, float("-inf")
        self.seats: list[Seat] = []
        """Who sits where, by number."""
        self._inbox: Inbox = SimpleQueue()
        self._end = weakref.finalize(self, _end, end, self.seats, os.getpid())

    @abstractmethod
    def _take_seat(self, number: int, inbox: Inbox) -> None:
        """Start a sampler, without waiting for it. It is among `seats` before it runs, so that close() finds it in any case."""

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Publish the weights and start the samplers, without waiting for them."""
        if self.seats or not self._end.alive:
            raise RunError("A back-end needs to begin once, got a second begin(). Make a new one.")
        self._publisher.publish(weights, version)
        for number in range(len(self._fleet)):
            self._take_seat(number, self._inbox)

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Samplers take it over between two steps."""
        self._publisher.publish(weights, version)

    def room(self) -> int:
        """Groups that samplers would still hold."""
        return self._fleet.room()

    def give(self, jobs: Sequence[Job]) -> None:
        """Deal whole groups, each to the sampler with the least to do; what one gets, it gets at once."""
        self._check_begun()
        for number, share in self._fleet.deal(jobs).items():
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
            for seat, message in self._messages(min(left, self._tick)):
                if isinstance(message, Done):
                    self._fleet.finish(seat.number, [group.job.group for group in message.groups])
                    groups += message.groups
                elif message is not None:
                    seat.hear(message)
                elif self.seats[seat.number] is seat:
                    lost += self._fleet.held(seat.number)
                    notes.append(self._replace(seat))
            self._look()
            if groups or lost or notes or left <= 0 or stop():
                return Arrived(tuple(groups), tuple(lost), tuple(notes))

    def _look(self) -> None:
        """At every sampler, a few times per tick: with thousands of them, not for every message."""
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + self._tick / 8
            for seat in self.seats:
                seat.look(now, working=self._fleet.is_working(seat.number))

    def close(self) -> None:
        """Let samplers go, then end them."""
        self._end()
        self.seats.clear()
        self._publisher.close()

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
        """Put a new sampler in a dead one's seat; returns what to tell the user. Raises where that has no prospect."""
        fate = seat.bury()
        death = self._fleet.lose(seat.number)
        said = f"Sampler {seat.number} {fate.cause}."
        if death.despair is not None:
            raise RunError(
                f"Sampling needs samplers that live to finish a group, got {death.despair}. {said} "
                f"Look at {fate.log}, which ends:\n{fate.tail}"
            )
        self._take_seat(seat.number, self._inbox)
        trace = f"\n{fate.traceback}" if fate.traceback else ""
        return f"{said} Restarted; {len(death.lost)} groups are sampled again.{trace}"


def _end(end: Callable[[Sequence[Seat]], None], seats: list[Seat], owner: int) -> None:
    if os.getpid() == owner:  # a fork of the learner that ends owns no samplers
        end(seats)
