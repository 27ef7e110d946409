"""Samplers that die again and again, on a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.train.backends.samplers import job_of
from tests.train.backends.scripted import Weight, named
from trimtab.errors import RunError
from trimtab.train.backends.assignments import SPARED, Assignments
from trimtab.train.backends.pool import Inbox, SamplerExit, SamplerPool, Seat
from trimtab.train.backends.sampler import Done, Failed, Message, Order, Ready
from trimtab.train.messages import Group
from trimtab.train.weights.objects import ObjectWeights


@dataclass(eq=False)
class Actor:
    """A seat that does what the test says."""

    number: int
    begun: float
    ready: bool = False
    outside: bool = False
    orders: list[Order] = field(default_factory=list)

    def send(self, order: Order) -> None:
        self.orders.append(order)

    def hear(self, message: Ready | Failed) -> None:
        self.ready = True

    def look(self, now: float, *, working: bool) -> None: ...

    def reap(self) -> SamplerExit:
        return SamplerExit("was ended", "its log", "the end of it", is_from_outside=self.outside)

    @property
    def groups(self) -> list[int]:
        return [job.group for order in self.orders for job in order.jobs]


class Pool(SamplerPool):
    """Its seats say what lies in `said`; waiting moves the clock."""

    def __init__(self, seats: int) -> None:
        self.now = 0.0
        self.said: list[tuple[Seat, Message | None]] = []
        weights: Any = ObjectWeights()
        fleet = Assignments(seats, hold=8, restarts=3)
        super().__init__(fleet, weights, end=lambda seats: None, clock=lambda: self.now)
        weights.publish = lambda *given: None
        self.begin(named(Weight()), 0)

    def _take_seat(self, number: int, inbox: Inbox) -> None:
        self.seats[number : number + 1] = [Actor(number, self.now)]

    def _messages(self, wait: float) -> Iterator[tuple[Seat, Message | None]]:
        said, self.said = self.said, []
        if not said:
            self.now += max(wait, 0.01)
        yield from said

    def actor(self, number: int) -> Actor:
        found = self.seats[number]
        assert isinstance(found, Actor)
        return found

    def dies(self, number: int, *, outside: bool) -> Sequence[str]:
        self.actor(number).outside = outside
        self.said.append((self.actor(number), None))
        return self.arrived(1.0).notes

    def passes(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.arrived(min(1.0, until - self.now))


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(1)
    yield made
    made.seats.clear()


def test_the_second_of_two_deaths_in_a_row_is_followed_by_a_pause_without_a_sampler(pool: Pool) -> None:
    assert "Restarted; 0 groups" in pool.dies(0, outside=False)[0]
    assert pool.present
    assert "Restarted in 1 s" in pool.dies(0, outside=False)[0]
    before, buried = pool.now, pool.actor(0)
    assert (pool.present, pool.room()) == ([], 0)
    pool.said.append((buried, None))  # a last word that came late is no second death
    pool.passes(0.5)
    assert pool.actor(0) is buried
    pool.passes(1.0)
    assert pool.actor(0) is not buried
    assert 1.0 <= pool.actor(0).begun - before < 1.2
    assert pool.room() == 8


def test_jobs_given_while_no_sampler_is_there_go_to_the_next_one(pool: Pool) -> None:
    pool.dies(0, outside=True)
    pool.dies(0, outside=True)
    pool.give([job_of(0), job_of(1)])
    pool.passes(2.0)
    assert pool.actor(0).groups == [0, 1]
    pool.said.append((pool.actor(0), Done((Group(job_of(0), ()),))))
    assert [group.job.group for group in pool.arrived(1.0).groups] == [0]


def test_while_one_rests_the_others_get_the_work() -> None:
    pool = Pool(2)
    pool.dies(1, outside=True)
    pool.dies(1, outside=True)
    pool.give([job_of(number) for number in range(4)])
    assert pool.actor(0).groups == [0, 1, 2, 3]
    assert pool.room() == 4
    pool.seats.clear()


def test_kills_from_outside_before_it_is_ready_end_a_run_late_and_its_own_deaths_soon(pool: Pool) -> None:
    for _ in range(SPARED):
        pool.dies(0, outside=True)
        pool.passes(61.0)
    with pytest.raises(RunError, match="got sampler 0 ended from outside 11 times in a row before it was ready"):
        pool.dies(0, outside=True)
    other = Pool(1)
    for _ in range(3):
        other.dies(0, outside=False)
        other.passes(61.0)
    with pytest.raises(RunError, match="got sampler 0 dead 4 times in a row without one"):
        other.dies(0, outside=False)
    other.seats.clear()


def test_a_kill_from_outside_of_one_that_was_ready_is_a_strike(pool: Pool) -> None:
    for attempt in range(4):
        pool.said.append((pool.actor(0), Ready()))
        pool.arrived(0.0)
        if attempt == 3:
            with pytest.raises(RunError, match="dead 4 times in a row"):
                pool.dies(0, outside=True)
        else:
            pool.dies(0, outside=True)
            pool.passes(61.0)
