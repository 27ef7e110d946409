"""The rule and the buffer together, in a simulated run: random finish orders, swaps in flight, deaths, restarts."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.simulated import Simulated, group_of, job_of, played
from trimtab.train.messages import Score
from trimtab.train.staleness import late, room

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
