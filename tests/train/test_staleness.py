"""The rule and the buffer together, in a simulated run: random finish orders, swaps in flight, deaths, restarts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.train.buffer import Buffer, Entry
from trimtab.train.messages import Group, Job, Problem, Sample, Score
from trimtab.train.run_state import pack_buffer, unpack_buffer
from trimtab.train.staleness import late, room


def group_of(job: Job, versions: list[int]) -> Group:
    """Samples that went through these versions, one token each."""
    count = len(versions)
    floats = np.zeros(count, np.float32)
    sample = Sample(np.arange(count, dtype=np.int32), floats, floats, np.array(versions, np.int32), "stop")
    return Group(job, (sample,) * job.samples)


def job_of(number: int, samples: int = 2) -> Job:
    return Job(number, np.array([number], np.int32), samples, seed=number * 7, max_tokens=4)


@dataclass
class Simulated:
    """A run without weights: jobs finish in any order, samplers die, the learner restarts from what it saved."""

    groups_per_step: int
    max_staleness: int
    random: Random
    late: str = "drop"
    version: int = 0
    buffer: Buffer = field(default_factory=Buffer)
    running: dict[int, int] = field(default_factory=dict)
    """Version at which each group under way was begun."""
    trained: list[tuple[int, int]] = field(default_factory=list)
    """Group number and staleness, in order of training."""

    def admit(self) -> None:
        buffer = self.buffer
        free = room(
            self.version, self.groups_per_step, self.max_staleness, buffer.admitted, buffer.trained, buffer.dropped
        )
        for _ in range(free):
            number = buffer.next
            buffer.admit(Problem(str(number), "1+1=", "2", {"row": number}), job_of(number))
        jobs = buffer.waiting()
        buffer.start(job.group for job in jobs)
        for job in jobs:
            self.running[job.group] = self.version

    def finish_one(self) -> None:
        if not self.running:
            return
        number = self.random.choice(sorted(self.running))
        begun = self.running.pop(number)
        group = group_of(job_of(number), sorted({begun, self.random.randint(begun, self.version)}))
        assert self.buffer.finish(group, [Score(1.0, True)] * 2)
        assert not self.buffer.finish(group, [Score(0.0, False)] * 2)

    def die(self) -> None:
        dead = [number for number in self.running if self.random.random() < 0.5]
        for number in dead:
            del self.running[number]
        self.buffer.lost(dead)

    def train(self) -> bool:
        batch = self.buffer.take(self.groups_per_step, self.version, self.max_staleness, self.late)
        if batch is None:
            return False
        self.record(batch)
        self.version += 1
        return True

    def record(self, batch: list[Entry]) -> None:
        for entry in batch:
            assert entry.group is not None
            self.trained.append((entry.job.group, self.version - entry.group.oldest))

    def saved(self) -> tuple[object, ...]:
        values, arrays = pack_buffer(self.buffer)
        return json.dumps(values), {name: array.copy() for name, array in arrays.items()}, self.version, [*self.trained]

    def restart(self, saved: tuple[object, ...]) -> None:
        values, arrays, self.version, trained = saved
        self.buffer, self.trained, self.running = unpack_buffer(json.loads(values), arrays), [*trained], {}

    def settle(self) -> None:
        """Nothing dies any more: whatever is under way finishes, and one batch is trained."""
        for _ in range(1000):
            self.admit()
            while self.running:
                self.finish_one()
            if self.train():
                return
        raise AssertionError("no batch was ever formed: deadlock")


def played(
    seed: int, groups_per_step: int, max_staleness: int, late: str = "drop", moves: int = 150, restarts: bool = True
) -> Simulated:
    random = Random(seed)
    run = Simulated(groups_per_step, max_staleness, random, late)
    saved = run.saved()
    for _ in range(moves):
        move = random.choices(["admit", "finish", "die", "train", "save", "restart"], [5, 12, 1, 5, 1, restarts])[0]
        if move == "save":
            saved = run.saved()
        elif move == "restart":
            run.restart(saved)
        else:
            {"admit": run.admit, "finish": run.finish_one, "die": run.die, "train": run.train}[move]()
        under_way = len(run.buffer)
        assert under_way <= (max_staleness + 1) * groups_per_step
    return run


RUNS = {"seed": st.integers(0, 10**6), "groups_per_step": st.integers(1, 5), "max_staleness": st.integers(0, 4)}


@given(**RUNS)
def test_no_trained_group_is_ever_older_than_the_bound(seed: int, groups_per_step: int, max_staleness: int) -> None:
    run = played(seed, groups_per_step, max_staleness)
    assert all(0 <= age <= max_staleness for _, age in run.trained)


@given(**RUNS)
def test_groups_trained_in_order_are_in_bound_without_dropping_any(
    seed: int, groups_per_step: int, max_staleness: int
) -> None:
    """The rule alone: where groups finish in order, none is late, whatever is asked for late ones."""
    run = Simulated(groups_per_step, max_staleness, Random(seed), late="train")
    for _ in range(60):
        run.random.choice([run.admit, run.train])()
        for number in sorted(run.running)[: run.random.randint(0, 3)]:
            begun = run.running.pop(number)
            run.buffer.finish(group_of(job_of(number), [begun, run.version]), [Score(1.0, True)] * 2)
    assert all(age <= max_staleness for _, age in run.trained)


@given(seed=RUNS["seed"], groups_per_step=RUNS["groups_per_step"])
def test_a_bound_of_zero_is_synchronous_and_drops_nothing(seed: int, groups_per_step: int) -> None:
    run = played(seed, groups_per_step, 0)
    run.settle()
    assert run.trained
    assert all(age == 0 for _, age in run.trained)
    assert run.buffer.dropped == 0


@given(**RUNS, late=st.sampled_from(["drop", "train"]))
def test_from_wherever_a_run_stands_a_full_batch_can_be_formed(
    seed: int, groups_per_step: int, max_staleness: int, late: str
) -> None:
    run = played(seed, groups_per_step, max_staleness, late)
    before = run.version
    run.settle()
    run.settle()
    assert run.version == before + 2


@given(**RUNS, late=st.sampled_from(["drop", "train"]))
def test_no_group_is_trained_twice_and_none_is_lost(
    seed: int, groups_per_step: int, max_staleness: int, late: str
) -> None:
    run = played(seed, groups_per_step, max_staleness, late)
    numbers = [number for number, _ in run.trained]
    assert len(set(numbers)) == len(numbers) == run.buffer.trained
    assert run.buffer.admitted == run.buffer.next == len(numbers) + run.buffer.dropped + len(run.buffer)
    assert run.buffer.dropped == 0 or late == "drop"


@given(**RUNS)
def test_the_pipeline_is_kept_as_full_as_the_bound_allows(seed: int, groups_per_step: int, max_staleness: int) -> None:
    run = played(seed, groups_per_step, max_staleness)
    run.admit()
    assert len(run.buffer) == (max_staleness + 1) * groups_per_step


def test_room_by_hand() -> None:
    # (version 3 + η 2 + 1) × 4 per step = 24; 19 admitted, 1 of them dropped: 24 − 18
    assert room(3, 4, 2, admitted=19, trained=12, dropped=1) == 6
    # η 0: one batch, and no second one before it is trained
    assert room(0, 4, 0, admitted=0, trained=0, dropped=0) == 4
    assert room(0, 4, 0, admitted=4, trained=0, dropped=0) == 0


def test_a_batch_taken_but_not_yet_published_lets_nobody_in() -> None:
    """Who begins now begins with the weights of before."""
    assert room(0, 4, 1, admitted=8, trained=4, dropped=0) == 0
    assert room(1, 4, 1, admitted=8, trained=4, dropped=0) == 4


def test_a_restart_that_forgot_its_counts_admits_no_more_than_a_fresh_run() -> None:
    assert room(1000, 4, 2, admitted=0, trained=0, dropped=0) == room(0, 4, 2, admitted=0, trained=0, dropped=0) == 12


@pytest.mark.parametrize(
    ("oldest", "learner", "bound", "answer"), [(3, 5, 2, False), (2, 5, 2, True), (5, 5, 0, False)]
)
def test_late_is_more_than_the_bound(oldest: int, learner: int, bound: int, answer: bool) -> None:
    assert late(oldest, learner, bound) is answer
