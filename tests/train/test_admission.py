"""Whom the learner waits for: simulated runs with ragged lengths, overtaking, deaths and slow samplers."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.train.simulated import group_of, job_of
from trimtab.train.buffer import Buffer
from trimtab.train.messages import Problem, Score
from trimtab.train.staleness import doomed, room, waits


@dataclass
class Ragged:
    """Groups of very different lengths on a simulated clock; each begins with the weights of the moment it is given."""

    per_step: int
    bound: int
    share: float
    random: Random
    deaths: bool = False
    version: int = 0
    clock: float = 0.0
    buffer: Buffer = field(default_factory=Buffer)
    running: dict[int, tuple[float, int]] = field(default_factory=dict)
    """When each group will be done, and the version it began with."""
    ages: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)

    def step(self) -> None:
        """One batch, however long it takes."""
        for _ in range(10_000):
            self.admit()
            batch = self.buffer.take(self.per_step, self.version, self.bound, "drop", self.share)
            if batch is not None:
                self.ages += [self.version - entry.group.oldest for entry in batch if entry.group]
                self.numbers += [entry.job.group for entry in batch]
                self.version += 1
                return
            self.move()
        raise AssertionError("no batch was ever formed: deadlock")

    def admit(self) -> None:
        buffer = self.buffer
        for _ in range(room(self.version, self.per_step, self.bound, buffer.admitted, buffer.trained, buffer.dropped)):
            buffer.admit(Problem("", "", ""), job_of(buffer.next))
        jobs = buffer.waiting()
        buffer.start((job.group for job in jobs), self.version)
        for job in jobs:
            self.running[job.group] = self.clock + self.random.lognormvariate(0.0, 1.0), self.version

    def move(self) -> None:
        """The next group is done, or some samplers die."""
        if self.deaths and self.random.random() < 0.1:
            dead = [number for number in self.running if self.random.random() < 0.5]
            for number in dead:
                del self.running[number]
            self.buffer.lost(dead)
            return
        number = min(self.running, key=lambda each: self.running[each][0])
        self.clock, begun = self.running.pop(number)
        self.buffer.finish(group_of(job_of(number), [begun, self.version]), [Score(1.0, True)] * 2)


RUNS = {"seed": st.integers(0, 10**6), "per_step": st.integers(1, 5), "bound": st.integers(0, 4)}


@given(**RUNS, deaths=st.booleans())
def test_a_learner_that_may_lose_nothing_loses_nothing(seed: int, per_step: int, bound: int, deaths: bool) -> None:
    run = Ragged(per_step, bound, 0.0, Random(seed), deaths)
    for _ in range(25):
        run.step()
    assert run.buffer.dropped == 0
    assert max(run.ages) <= bound
    assert len(set(run.numbers)) == len(run.numbers) == 25 * per_step


@given(**RUNS, deaths=st.booleans(), share=st.sampled_from([0.0, 0.02, 0.1, 0.3]))
def test_no_more_is_dropped_than_the_share_and_the_bound_holds(
    seed: int, per_step: int, bound: int, deaths: bool, share: float
) -> None:
    run = Ragged(per_step, bound, share, Random(seed), deaths)
    for _ in range(25):
        run.step()
        assert run.buffer.dropped <= share * (run.buffer.trained + run.buffer.dropped)
        assert all(0 <= age <= bound for age in run.ages)
        assert run.buffer.admitted == run.buffer.trained + run.buffer.dropped + len(run.buffer)


def test_without_waiting_about_a_fifth_is_dropped() -> None:
    """The control: the same lengths, a learner that never waits."""
    run = Ragged(8, 2, 1.0, Random(0))
    for _ in range(200):
        run.step()
    assert run.buffer.dropped > 0.15 * (run.buffer.trained + run.buffer.dropped)


@given(seed=st.integers(0, 10**6), per_step=st.integers(1, 4), bound=st.integers(0, 3))
def test_counting_dooms_as_trying_every_order_does(seed: int, per_step: int, bound: int) -> None:
    """After this batch, batch by batch, the oldest first, nothing arriving later than it must: who is left is doomed."""
    random, version = Random(seed), bound
    under_way = {begun: random.randint(0, 3) for begun in range(version + 1)}
    ready = {begun: random.randint(0, 3) for begun in range(version + 1)}
    left = sorted(begun for begun, count in ready.items() for _ in range(count))[per_step:]
    left += [begun for begun, count in under_way.items() for _ in range(count)]
    late = 0
    for turn in range(1, bound + 2):
        late += sum(begun < version + turn - bound for begun in left)
        left = sorted(begun for begun in left if begun >= version + turn - bound)[per_step:]
    assert doomed(under_way, ready, version, per_step, bound) <= late
    assert bool(doomed(under_way, ready, version, per_step, bound)) == bool(late)


def test_doomed_and_waiting_by_hand() -> None:
    # The example of the docstring: two of version 0 are left for one batch.
    assert doomed({0: 2}, {1: 1}, 1, 1, 2) == 1
    assert doomed({0: 1}, {1: 1}, 1, 1, 2) == 0
    # At version 2 they have to be in this batch: 2 under way are both lost, ready ones beyond the batch too.
    assert doomed({0: 2}, {}, 2, 4, 2) == 2
    assert doomed({0: 1}, {0: 5}, 2, 4, 2) == 1 + 1
    assert not waits(0, 0, 0, 0.0)
    assert not waits(1, 98, 1, 0.02)  # 2 of 100
    assert waits(2, 98, 1, 0.02)  # 3 of 101
    assert not waits(2, 0, 0, 1.0)


def test_the_oldest_are_taken_before_those_with_lower_numbers() -> None:
    buffer = Buffer()
    for number in range(3):
        buffer.admit(Problem("", "", ""), job_of(number))
    buffer.start(range(3), 0)
    buffer.lost([0])
    buffer.start([0], 1)  # sampled again, with newer weights
    for number, begun in ((0, 1), (1, 0), (2, 0)):
        buffer.finish(group_of(job_of(number), [begun]), [Score(1.0, True)] * 2)
    assert [entry.job.group for entry in buffer.take(2, 1, 1, "drop", 0.0) or []] == [1, 2]


def test_a_group_without_tokens_has_no_age_and_is_taken_last() -> None:
    buffer = Buffer()
    for number in range(3):
        buffer.admit(Problem("", "", ""), job_of(number))
    buffer.start(range(3), 0)
    for number, versions in ((0, []), (1, [0]), (2, [0])):
        buffer.finish(group_of(job_of(number), versions), [Score(0.0, False)] * 2)
    assert [entry.job.group for entry in buffer.take(2, 0, 1, "drop", 0.0) or []] == [1, 2]
    assert [entry.job.group for entry in buffer.take(1, 1, 1, "drop", 0.0) or []] == [0]
