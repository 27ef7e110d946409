"""What the driver bears: the real Buffer, staleness rule and Assignments under a simulated clock, with 10 to 10,000 samplers.

    python benchmarks/simulate.py            # 10, 100, 1,000 and 10,000 samplers
    python benchmarks/simulate.py --quick    # 10 and 100

A sampler works on 16 groups at once, each for 20 s on average (lognormal, `--sigma`), and dies now and then. The driver is one
thread: it admits, deals, receives, takes batches and learns. What Buffer, Assignments and rule cost is measured here, call by call, and
goes into its clock. What a group costs beyond that (prompt, unpickling, judging) is measured at the start in the run's own code, on
groups of `--responses` × `--tokens`, or given by `--group`. What a message costs (Ray) is given by `--message`, and so are 0.2 ms per
sampler to tell it of new weights. Learning takes `--learner` of the time in which samplers make a batch.

Ideal is what samplers make if they are never idle. Each size is run twice: with a learner that never waits (share 1), and with at
most 2 % lost.
"""

from __future__ import annotations

import argparse
import heapq
import os
import pickle
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import cast

import numpy as np

from trimtab.config.training import Train
from trimtab.train.backends.assignments import Assignments
from trimtab.train.backends.protocol import Arrived
from trimtab.train.backends.sampler import Done
from trimtab.train.batches import BatchSource
from trimtab.train.buffer import Buffer
from trimtab.train.build import Parts, jobs_of, pretrained_of
from trimtab.train.display import Silent
from trimtab.train.judging import JudgePool
from trimtab.train.memory import collect_step, rare_collections
from trimtab.train.messages import Group, Job, Problem, Sample, Score
from trimtab.train.run_state import RunState
from trimtab.train.staleness import room
from trimtab.train.tasks import source
from trimtab.train.watch import Watch

SLOTS, SECONDS, LONG_NAMED = 16, 20.0, 0.2e-3
NOTHING = np.zeros(1, np.float32)
TOKEN, PROBLEM, SCORES = np.zeros(1, np.int32), Problem("", "", ""), (Score(0.0, False),)


@dataclass
class Plan:
    """What is simulated."""

    samplers: int
    groups: int
    max_staleness: int
    max_dropped: float
    sigma: float
    learner: float
    message: float
    group: float
    lifetime: float
    steps: int
    hold: int = 0
    """Groups per sampler at a time; 0: all that the rule admits, dealt in advance."""
    seed: int = 0


@dataclass
class Simulation:
    """A run on a simulated clock; `busy` is the driver's own work."""

    plan: Plan
    clock: float = 0.0
    busy: float = 0.0
    learning: float = 0.0
    books: float = 0.0
    """Seconds of processor time in Buffer, Assignments and rule, as measured."""
    version: int = 0
    deaths: int = 0
    ages: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        plan = self.plan
        self.random, self.buffer = Random(plan.seed), Buffer()
        hold = plan.hold or -(-(plan.max_staleness + 1) * plan.groups // plan.samplers)
        self.assignments = Assignments(plan.samplers, hold=hold, restarts=10**9)
        self.queues: list[deque[int]] = [deque() for _ in range(plan.samplers)]
        self.running: list[dict[int, int]] = [{} for _ in range(plan.samplers)]
        self.jobs: dict[int, Job] = {}
        self.events: list[tuple[float, int, int, int]] = []  # time, seat, group (−1: a death), attempt
        self.done: dict[int, list[tuple[int, int]]] = {}
        self.attempts: Counter[int] = Counter()
        self.location = -(plan.sigma**2) / 2 + float(np.log(SECONDS))
        for seat in range(plan.samplers if plan.lifetime else 0):
            self._push(self.random.expovariate(1 / plan.lifetime), seat, -1)

    def _push(self, at: float, seat: int, number: int) -> None:
        heapq.heappush(self.events, (at, seat, number, self.attempts[number] if number >= 0 else 0))

    def measured(self, call, *given, **named):
        """A real call, whose processor time passes on the driver's clock."""
        begun = time.thread_time()
        found = call(*given, **named)
        spent = time.thread_time() - begun
        self.books += spent
        self.work(spent)
        return found

    def work(self, seconds: float) -> None:
        """The driver is busy."""
        self.busy += seconds
        self.clock += seconds

    def begin(self, seat: int, at: float) -> None:
        """A sampler fills its free slots."""
        while self.queues[seat] and len(self.running[seat]) < SLOTS:
            number = self.queues[seat].popleft()
            self.running[seat][number] = self.version
            self._push(at + self.random.lognormvariate(self.location, self.plan.sigma), seat, number)

    def pass_time(self, until: float) -> None:
        """What happens at the samplers up to then."""
        while self.events and self.events[0][0] <= until:
            at, seat, number, attempt = heapq.heappop(self.events)
            if number < 0:
                self.die(seat, at)
            elif number in self.running[seat] and attempt == self.attempts[number]:
                self.done.setdefault(seat, []).append((number, self.running[seat].pop(number)))
                self.begin(seat, at)

    def die(self, seat: int, at: float) -> None:
        """A sampler is gone, another one takes its seat."""
        self.deaths += 1
        lost = self.assignments.lose(seat).lost
        sent = {number for number, _ in self.done.get(seat, ())}  # their message was on its way
        for number in lost:
            self.attempts[number] += number not in sent
        self.running[seat].clear()
        self.queues[seat].clear()
        self.buffer.lost(number for number in lost if number not in sent)
        self._push(at + self.random.expovariate(1 / self.plan.lifetime), seat, -1)

    def receive(self) -> None:
        """One message from every sampler that has something, with all it has."""
        arrived, self.done = self.done, {}
        for seat, results in arrived.items():
            self.work(self.plan.message + self.plan.group * len(results))
            self.measured(self.assignments.finish, seat, [number for number, _ in results])
            for number, begun in results:
                sample = Sample(TOKEN, NOTHING, NOTHING, np.full(1, begun, np.int32), "stop")
                self.measured(self.buffer.finish, Group(self.jobs[number], (sample,)), SCORES)

    def admit(self) -> None:
        """As the loop does."""
        plan, buffer = self.plan, self.buffer
        free = room(self.version, plan.groups, plan.max_staleness, buffer.admitted, buffer.trained, buffer.dropped)
        for _ in range(free):
            job = Job(buffer.next, TOKEN, 1, 0, 1)
            self.jobs[job.group] = job
            self.measured(buffer.admit, PROBLEM, job)
        jobs = self.measured(buffer.waiting, self.measured(self.assignments.room))
        if jobs:
            self.measured(buffer.start, [job.group for job in jobs], self.version)
            for seat, share in self.measured(self.assignments.deal, jobs).items():
                self.queues[seat].extend(job.group for job in share)
                self.begin(seat, self.clock)

    def step(self) -> None:
        """Wait for a batch as the loop does, learn, publish."""
        plan, wanted = self.plan, (self.plan.groups, self.version, self.plan.max_staleness, "drop")
        while True:
            self.admit()
            self.pass_time(self.clock)
            self.receive()
            batch = self.measured(self.buffer.take, *wanted, plan.max_dropped)
            if batch is not None:
                break
            if not self.done and self.events:
                self.clock = max(self.clock, self.events[0][0])
        self.ages.update(self.version - entry.oldest for entry in batch)
        for entry in batch:
            del self.jobs[entry.job.group]
        seconds = plan.learner * plan.groups / ideal(plan)
        self.learning += seconds
        self.clock += seconds
        self.pass_time(self.clock)
        self.work(LONG_NAMED * plan.samplers)
        self.version += 1


class Echo:
    """A back-end that answers every job at once, as pickled bytes: what is measured is the run that takes them in."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.version, self.answers, self.pickling = tokens, 0, deque[bytes](), 0.0

    def room(self) -> int:
        """For whatever there is."""
        return 10**9

    def give(self, jobs: Sequence[Job]) -> None:
        """The work of samplers, which is timed apart."""
        begun = time.process_time()
        for job in jobs:
            rng = np.random.default_rng(job.group)
            ids = rng.integers(3, 13, (job.samples, self.tokens)).astype(np.int32)
            floats, versions = -rng.random((2, self.tokens), np.float32), np.full(self.tokens, self.version, np.int32)
            samples = tuple(Sample(row, floats[0], floats[1], versions.copy(), "length") for row in ids)
            texts = tuple("0" * self.tokens for _ in samples)
            self.answers.append(pickle.dumps(Done((Group(job, samples, texts),)), pickle.HIGHEST_PROTOCOL))
        self.pickling += time.process_time() - begun

    def arrived(self, timeout: float, stop: object = None) -> Arrived:
        """All that there is."""
        groups = [group for each in self.answers for group in pickle.loads(each).groups]
        self.answers.clear()
        return Arrived(tuple(groups))


def cost_of_a_group(responses: int, tokens: int, groups: int = 4096, turns: int = 4) -> float:
    """Seconds of the processor that the real run spends on a group, Buffer and rule included, from its prompt to its batch."""
    config = Train.from_settings(
        {
            "rollout": {"groups": groups, "samples": responses, "max_staleness": 0},
            "model": {"warm_start": None},
            "evaluate": None,
        }
    )
    problems = source(config.task, config.seed)
    policy = pretrained_of(config, problems, tokens, Silent()).policy
    learner, backend = SimpleNamespace(version=0), Echo(tokens)
    make = partial(jobs_of, config, problems, policy, tokens)
    with JudgePool.of(config.task, problems) as judge, rare_collections():
        parts = SimpleNamespace(learner=learner, backend=backend, judge=judge, policy=policy, make=make)
        state = RunState(Watch(config.correction, config.learner.patience))
        batches = BatchSource(config, cast("Parts", parts), state, lambda kind, message: None)
        found: list[float] = []
        for version in range(turns):
            learner.version = backend.version = version
            begun, backend.pickling = time.process_time(), 0.0
            assert len(batches.batch() or ()) == groups
            collect_step()
            found.append((time.process_time() - begun - backend.pickling) / groups)
    return float(np.median(found[1:]))


def ideal(plan: Plan) -> float:
    """Groups per second of samplers that are never idle."""
    return plan.samplers * SLOTS / SECONDS


def shown(plan: Plan) -> str:
    run = Simulation(plan)
    warm = plan.steps // 4
    while run.version < warm:
        run.step()
    begun, trained, dropped, busy, books = run.clock, run.buffer.trained, run.buffer.dropped, run.busy, run.books
    run.ages.clear()
    learning = run.learning
    while run.version < plan.steps:
        run.step()
    seconds, done = run.clock - begun, run.buffer.trained - trained
    lost = run.buffer.dropped - dropped
    most = sorted(run.ages.elements())
    rate = done / seconds
    return (
        f"{plan.samplers:8,} {plan.groups:8,} {plan.max_dropped:6g} {rate:9.1f} {ideal(plan):9.1f} {rate / ideal(plan):7.0%} "
        f"{lost / (lost + done):8.1%} {np.mean(most):6.2f} {most[-1]:4d} {1e3 * (run.books - books) / (done + lost):9.3f} "
        f"{(run.busy - busy) / seconds:7.0%} {(run.learning - learning) / seconds:8.0%} {run.deaths:7,}"
    )


@rare_collections()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--samplers", type=int, nargs="*")
    parser.add_argument(
        "--admits", type=float, default=3.0, help="how many times what runs the rule admits (batch size)"
    )
    parser.add_argument("--max-staleness", type=int, default=2)
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--learner", type=float, default=0.5)
    parser.add_argument("--message", type=float, default=0.3, help="ms of the driver per message")
    parser.add_argument(
        "--group", type=float, help="ms of the driver per group beyond Buffer and Assignments; else measured"
    )
    parser.add_argument("--responses", type=int, default=8, help="of the groups that are measured")
    parser.add_argument("--tokens", type=int, default=512, help="of each of their responses")
    parser.add_argument(
        "--lifetime", type=float, default=3600.0, help="seconds a sampler lives on average; 0: for ever"
    )
    parser.add_argument(
        "--hold", type=int, default=0, help="groups that a sampler holds; 0: all that is admitted, as the back-ends do"
    )
    parser.add_argument("--steps", type=int, help="24 where not given, 12 from 1,000 samplers on, 6 from 10,000")
    given = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # as `trimtab train` does
    per_group = given.group
    if per_group is None:
        per_group = 1e3 * cost_of_a_group(given.responses, given.tokens)
        print(
            f"a group of {given.responses} × {given.tokens} tokens costs the driver {per_group:.3f} ms, Buffer and rule included"
        )
    counts = given.samplers or ([10, 100] if given.quick else [10, 100, 1000, 10_000])
    head = (
        "samplers",
        "batch",
        "share",
        "groups/s",
        "ideal",
        "of it",
        "dropped",
        "age",
        "most",
        "books ms",
        "driver",
        "learner",
        "deaths",
    )
    print("{:>8} {:>8} {:>6} {:>9} {:>9} {:>7} {:>8} {:>6} {:>4} {:>9} {:>7} {:>8} {:>7}".format(*head))
    for samplers in counts:
        steps = given.steps or (24 if samplers < 1000 else 12 if samplers < 10_000 else 6)
        groups = round(given.admits * samplers * SLOTS / (given.max_staleness + 1))
        for share in (1.0, 0.02):
            plan = Plan(
                samplers, groups, given.max_staleness, share, given.sigma, given.learner,
                given.message / 1e3, per_group / 1e3, given.lifetime, steps, given.hold,
            )  # fmt: skip
            print(shown(plan), flush=True)


if __name__ == "__main__":
    main()
