"""A run without weights: random finish orders, swaps in flight, deaths, restarts."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

import numpy as np

from trimtab.train.buffer import Buffer, Entry
from trimtab.train.messages import Group, Job, Problem, Sample, Score
from trimtab.train.run_state import pack_buffer, unpack_buffer
from trimtab.train.staleness import room


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
