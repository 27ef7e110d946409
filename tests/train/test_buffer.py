from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load, save

from tests.train.plain_buffer import PlainBuffer
from tests.train.simulated import group_of, job_of, played
from trimtab.errors import RunError
from trimtab.train.buffer import Buffer, State
from trimtab.train.messages import Group, Problem, Sample, Score
from trimtab.train.run_state import pack_buffer, unpack_buffer

PROBLEM = Problem("p", "1+1=", "2")
SCORES = [Score(1.0, True), Score(0.5, False, {"exact": 0.5}, "timeout")]


def filled(count: int, ready: int = 0, version: int = 0) -> Buffer:
    buffer = Buffer()
    for number in range(count):
        buffer.admit(PROBLEM, job_of(number))
    buffer.start(range(ready))
    for number in range(ready):
        buffer.finish(group_of(job_of(number), [version, version]), SCORES)
    return buffer


def test_a_group_goes_from_waiting_to_trained_and_leaves_nothing() -> None:
    buffer = Buffer()
    buffer.admit(PROBLEM, job_of(0))
    assert [job.group for job in buffer.waiting()] == [0]
    buffer.start([0])
    assert (buffer.waiting(), buffer.in_flight, buffer.in_queue) == ([], 1, 0)
    assert buffer.finish(group_of(job_of(0), [0]), SCORES)
    assert (buffer.in_flight, buffer.in_queue) == (0, 1)
    (entry,) = buffer.take(1, 0, 0) or []
    assert entry.state is State.TRAINED
    assert (entry.problem, entry.scores, entry.attempts) == (PROBLEM, tuple(SCORES), 1)
    assert len(buffer) == 0
    assert buffer.counts == {"waiting": 0, "running": 0, "sampled": 0, "ready": 0, "trained": 1, "dropped": 0}


def test_a_group_that_is_withdrawn_gives_its_place_back_and_not_its_number() -> None:
    buffer = filled(3)
    buffer.withdraw(1)
    assert (buffer.admitted, buffer.next, buffer.dropped) == (2, 3, 0)
    assert [job.group for job in buffer.waiting()] == [0, 2]
    values, _ = pack_buffer(buffer)
    assert values["admitted"] == values["trained"] + values["dropped"] + len(values["entries"])
    buffer.start([0])
    for number in (0, 1):
        with pytest.raises(RunError, match="withdrawn needs to be waiting"):
            buffer.withdraw(number)


def test_the_lowest_numbers_that_are_ready_are_taken_in_order() -> None:
    buffer = filled(5)
    buffer.start(range(5))
    for number in (4, 1, 3):
        buffer.finish(group_of(job_of(number), [0]), SCORES)
    assert buffer.take(4, 0, 0) is None
    assert [entry.job.group for entry in buffer.take(2, 0, 0) or []] == [1, 3]
    assert buffer.counts["running"] == 2


def test_a_lost_group_waits_again_as_the_same_job() -> None:
    buffer = filled(2)
    jobs = buffer.waiting()
    buffer.start([0, 1])
    buffer.finish(group_of(job_of(1), [0]), SCORES)
    buffer.lost([0, 1, 99])
    assert [id(job) for job in buffer.waiting()] == [id(jobs[0])]
    assert buffer.in_queue == 1


def test_a_second_result_is_ignored_and_counted() -> None:
    buffer = filled(1, ready=1)
    late_one = group_of(job_of(0), [3])
    assert not buffer.finish(late_one, SCORES)
    (entry,) = buffer.take(1, 0, 0) or []
    assert entry.group is not None
    assert entry.group.oldest == 0
    assert not buffer.finish(late_one, SCORES)
    assert not buffer.finish(group_of(job_of(7), [0]), SCORES)
    assert buffer.ignored == 3


def test_the_result_of_a_sampler_taken_for_dead_counts_if_it_comes_first() -> None:
    buffer = filled(1)
    buffer.start([0])
    buffer.lost([0])
    assert buffer.finish(group_of(job_of(0), [0]), SCORES)
    assert buffer.waiting() == []


def test_a_late_group_is_dropped_even_where_too_few_remain() -> None:
    buffer = filled(2, ready=2, version=0)
    assert buffer.take(1, version=3, max_staleness=2) is None
    assert (buffer.dropped, len(buffer)) == (2, 0)


def test_a_late_group_is_trained_if_so_asked() -> None:
    buffer = filled(2, ready=2, version=0)
    assert len(buffer.take(2, version=3, max_staleness=2, late="train") or []) == 2
    assert buffer.dropped == 0


def test_the_oldest_token_decides_not_the_last() -> None:
    buffer = filled(1)
    buffer.start([0])
    buffer.finish(group_of(job_of(0), [0, 3]), SCORES)
    assert buffer.take(1, version=3, max_staleness=2) is None
    assert buffer.dropped == 1


def test_a_group_without_a_token_is_never_late() -> None:
    buffer = filled(1)
    buffer.start([0])
    buffer.finish(group_of(job_of(0), []), SCORES)
    assert len(buffer.take(1, version=100, max_staleness=0) or []) == 1


def test_a_number_is_never_used_twice() -> None:
    buffer = filled(1, ready=1)
    buffer.take(1, 0, 0)
    with pytest.raises(RunError, match="needs a number of 1 or more, got 0"):
        buffer.admit(PROBLEM, job_of(0))


def test_only_a_waiting_group_can_start() -> None:
    buffer = filled(1)
    buffer.start([0])
    with pytest.raises(RunError, match="group 0, which is running"):
        buffer.start([0])
    with pytest.raises(RunError, match="group 5, which is trained, dropped or unknown"):
        buffer.start([5])


def test_a_result_needs_all_its_samples_and_scores() -> None:
    buffer = filled(1)
    with pytest.raises(RunError, match="needs 2 samples and as many scores, got 2 and 1"):
        buffer.finish(group_of(job_of(0), [0]), SCORES[:1])
    with pytest.raises(RunError, match="got 1 and 2"):
        buffer.finish(Group(job_of(0), group_of(job_of(0), [0]).samples[:1]), SCORES)


def test_a_saved_group_comes_back_whole() -> None:
    buffer = filled(3)
    buffer.start([0, 1])
    strange = Sample(
        np.array([5, 6], np.int32), np.array([-0.5, -np.inf], np.float32), np.array([np.nan, -1e-30], np.float32),
        np.array([2, 3], np.int32), "length",
    )  # fmt: skip
    empty = group_of(job_of(0), []).samples[0]
    buffer.finish(Group(job_of(1), (strange, empty)), SCORES)
    values, arrays = pack_buffer(buffer)
    again = unpack_buffer(json.loads(json.dumps(values)), load(save(arrays)))
    assert [job.group for job in again.waiting()] == [0, 2]
    assert [(job.seed, job.samples, job.prompt.tolist(), job.max_tokens) for job in again.waiting()] == [
        (0, 2, [0], 4),
        (14, 2, [2], 4),
    ]
    (entry,) = again.take(1, 3, 4) or []
    assert (entry.problem, entry.scores, entry.attempts) == (PROBLEM, tuple(SCORES), 1)
    assert entry.group is not None
    first, second = entry.group.samples
    assert (first.finish, second.finish, len(second.tokens)) == ("length", "stop", 0)
    for name in ("tokens", "behavior", "raw", "versions"):
        assert getattr(first, name).tobytes() == getattr(strange, name).tobytes()
        assert getattr(first, name).dtype == getattr(strange, name).dtype


@given(seed=st.integers(0, 10**6))
def test_saving_twice_saves_the_same(seed: int) -> None:
    buffer = played(seed, 3, 2, moves=60).buffer
    values, arrays = pack_buffer(buffer)
    values_again, arrays_again = pack_buffer(unpack_buffer(values, arrays))
    assert values == values_again
    assert all(np.array_equal(array, arrays_again[name]) for name, array in arrays.items())
    assert buffer.counts["running"] + buffer.counts["waiting"] == unpack_buffer(values, arrays).counts["waiting"]


@dataclass
class Pair:
    """The buffer and its plain form, asked the same."""

    random: Random
    late: str
    bound: int
    fast: Buffer = field(default_factory=Buffer)
    plain: PlainBuffer = field(default_factory=PlainBuffer)
    version: int = 0

    def admit(self) -> None:
        number = self.fast.next + self.random.choice([0, 0, 1])
        for each in (self.fast, self.plain):
            each.admit(PROBLEM, job_of(number))

    def start(self) -> None:
        numbers = [job.group for job in self.plain.waiting()[: self.random.randint(0, 3)]]
        for each in (self.fast, self.plain):
            each.start(numbers)

    def finish(self) -> None:
        versions = [] if self.random.random() < 0.1 else sorted(self.random.choices(range(self.version + 1), k=2))
        group = group_of(job_of(self.random.randrange(self.fast.next + 1)), versions)
        assert self.fast.finish(group, SCORES) == self.plain.finish(group, SCORES)

    def lose(self) -> None:
        number = self.random.randrange(self.fast.next + 1)
        for each in (self.fast, self.plain):
            each.lost([number, number + 1])

    def take(self) -> None:
        taken = [each.take(2, self.version, self.bound, self.late) for each in (self.fast, self.plain)]
        one, other = ([entry.job.group for entry in each] if each else each for each in taken)
        assert one == other

    def publish(self) -> None:
        self.version += 1

    def restart(self) -> None:
        """What runs is begun anew."""
        for each in (self.fast, self.plain):
            each.lost(range(self.fast.next))
        self.fast = unpack_buffer(*pack_buffer(self.fast))

    def check(self) -> None:
        fast, plain, most = self.fast, self.plain, self.random.randint(0, 3)
        waiting = [job.group for job in plain.waiting()]
        assert [job.group for job in fast.waiting()] == waiting
        assert [job.group for job in fast.waiting(most)] == waiting[:most]
        assert fast.counts == plain.counts
        assert (fast.in_flight, fast.in_queue, fast.ignored) == (plain.in_flight, plain.in_queue, plain.ignored)
        assert (fast.next, len(fast)) == (plain.next, len(plain))


@given(seed=st.integers(0, 10**6), late=st.sampled_from(["drop", "train"]), bound=st.integers(0, 3))
def test_indices_decide_as_looking_through_all_groups_does(seed: int, late: str, bound: int) -> None:
    pair = Pair(Random(seed), late, bound)
    moves = [pair.admit, pair.start, pair.finish, pair.take, pair.lose, pair.publish, pair.restart]
    for _ in range(120):
        pair.random.choices(moves, [4, 3, 5, 3, 1, 1, 1])[0]()
        pair.check()


@pytest.mark.parametrize("max_dropped", [1.0, 0.5])
def test_groups_that_have_gone_are_forgotten_whichever_heap_they_were_taken_from(max_dropped: float) -> None:
    buffer = Buffer()
    for number in range(500):
        buffer.admit(PROBLEM, job_of(number))
        buffer.start([number])
        buffer.finish(group_of(job_of(number), [0]), SCORES)
        assert buffer.take(1, 0, 0, "drop", max_dropped)
    assert len(buffer._ages) < 100
    assert len(buffer._ready) < 100


def test_a_group_without_a_token_is_never_late_and_taken_after_all_others() -> None:
    buffer = filled(4)
    buffer.start(range(4))
    for number, versions in enumerate([[], [2], [], [1]]):
        buffer.finish(group_of(job_of(number), versions), SCORES)
    assert [entry.job.group for entry in buffer.take(2, 3, 2, "drop", 0.5) or ()] == [1, 3]
    assert [entry.job.group for entry in buffer.take(2, 99, 2, "drop", 0.5) or ()] == [0, 2]
    assert buffer.dropped == 0


def test_what_a_group_costs_does_not_grow_with_the_groups_under_way() -> None:
    """Counted in looks at entries, not in seconds: a step over 4,000 groups under way looks at those it moves."""

    class Counting(dict):
        looks = 0

        def get(self, *key: object) -> object:
            Counting.looks += 1
            return super().get(*key)

        def values(self) -> object:
            Counting.looks += len(self)
            return super().values()

    def looks(under_way: int) -> int:
        buffer = filled(under_way + 1)
        buffer.start(range(under_way))
        buffer.start([buffer.waiting(1)[0].group])  # what has moved on is taken out once
        buffer._entries = Counting(buffer._entries)
        Counting.looks = 0
        for number in range(8):
            buffer.finish(group_of(job_of(number), [0]), SCORES)
            assert (buffer.take(8, 0, 0) is not None) == (number == 7)
            buffer.admit(PROBLEM, job_of(buffer.next))
            buffer.start([buffer.waiting(1)[0].group])
        return Counting.looks

    assert looks(4000) == looks(16)
