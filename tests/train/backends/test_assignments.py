"""The assignments of samplers, played through without a single process."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.train.backends.assignments import SPARED, Assignments
from trimtab.train.messages import Job


def job_of(number: int, samples: int = 2) -> Job:
    return Job(number, np.array([1], np.int32), samples, seed=number, max_tokens=3)


def numbers(dealt: dict[int, list[Job]]) -> dict[int, list[int]]:
    return {seat: [job.group for job in jobs] for seat, jobs in dealt.items()}


def test_groups_go_to_the_seat_with_the_least_to_do() -> None:
    assignments = Assignments(2, hold=8, restarts=3)
    # responses to sample: 0 has 4; 1 has 2, then 4; equal, so the first: 0 has 6; 1 has 6
    assert numbers(assignments.deal([job_of(0, 4), job_of(1), job_of(2), job_of(3), job_of(4)])) == {
        0: [0, 3],
        1: [1, 2, 4],
    }
    assert assignments.room() == 11
    assignments.finish(0, [0, 3])
    assert assignments.room() == 13
    assert not assignments.is_working(0)
    assert numbers(assignments.deal([job_of(5)])) == {0: [5]}


def test_only_the_seats_asked_for_count_and_are_dealt_to() -> None:
    assignments = Assignments(3, hold=2, restarts=3)
    assert numbers(assignments.deal([job_of(0), job_of(1), job_of(2)], among=[1])) == {1: [0, 1, 2]}
    assert (assignments.room(), assignments.room([0, 2]), assignments.room([1])) == (3, 4, 0)


def test_a_death_gives_back_what_was_held_and_counts_against_the_seat_until_a_group_finishes() -> None:
    assignments = Assignments(1, hold=8, restarts=1)
    assignments.deal([job_of(0)])
    death = assignments.lose(0)
    assert (death.lost, death.give_up) == ((0,), None)
    assert assignments.room() == 8
    assignments.deal([job_of(1)])
    assignments.finish(0, [1])
    assert assignments.lose(0).give_up is None  # it had finished one between
    assert assignments.lose(0).give_up == "sampler 0 dead 2 times in a row without one"


def test_a_group_that_kills_whoever_holds_it_is_given_up_though_others_finish() -> None:
    assignments = Assignments(1, hold=8, restarts=2)
    for attempt in range(3):
        assignments.deal([job_of(7), job_of(attempt)])
        assignments.finish(0, [attempt])
        death = assignments.lose(0)
        assert death.lost == (7,)
        assert death.give_up == ("3 deaths with the same groups in hand (7)" if attempt == 2 else None)


def test_a_group_that_came_back_has_a_clean_record() -> None:
    assignments = Assignments(1, hold=8, restarts=1)
    assignments.deal([job_of(0)])
    assignments.lose(0)
    assignments.deal([job_of(0)])
    assignments.finish(0, [0])
    assignments.deal([job_of(0)])
    assert assignments.lose(0).give_up is None


def test_each_death_in_a_row_is_followed_by_a_longer_pause_up_to_a_minute_and_a_finished_group_ends_the_row() -> None:
    assignments = Assignments(1, hold=8, restarts=9)
    assert [assignments.lose(0).pause for _ in range(9)] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assignments.deal([job_of(0)])
    assignments.finish(0, [0])
    assert assignments.lose(0).pause == 0


def test_a_sampler_ended_from_outside_before_it_was_ready_is_no_strike_for_it_or_its_groups() -> None:
    assignments = Assignments(1, hold=8, restarts=1)
    for _ in range(SPARED):
        assignments.deal([job_of(0)])
        death = assignments.lose(0, spared=True)
        assert (death.lost, death.give_up) == ((0,), None)
    assert assignments.lose(0).give_up is None  # the first of its own
    assert assignments.lose(0).give_up == "sampler 0 dead 2 times in a row without one"


def test_one_that_is_ended_from_outside_every_time_is_given_up_too() -> None:
    assignments = Assignments(1, hold=8, restarts=3)
    deaths = [assignments.lose(0, spared=True) for _ in range(SPARED + 1)]
    assert [death.give_up for death in deaths[:-1]] == [None] * SPARED
    assert deaths[-1].give_up == "sampler 0 ended from outside 11 times in a row before it was ready"
    assert sum(death.pause for death in deaths) == 0 + 1 + 2 + 4 + 8 + 16 + 32 + 60 + 60 + 60


@given(seed=st.integers(0, 10**6), seats=st.integers(1, 5))
def test_every_group_is_held_by_one_seat_until_it_comes_back_or_its_seat_dies(seed: int, seats: int) -> None:
    random, assignments = Random(seed), Assignments(seats, hold=4, restarts=10**9)
    waiting, held, load = list(range(30)), {seat: [] for seat in range(seats)}, Counter[int]()
    samples = {number: random.randint(1, 3) for number in waiting}
    for _ in range(60):
        seat = random.randrange(seats)
        match random.choice(["deal", "finish", "lose"]):
            case "deal":
                given, waiting = waiting[:2], waiting[2:]
                for number in given:  # the books written out
                    to = min(range(seats), key=lambda each: (load[each], each))
                    held[to].append(number)
                    load[to] += samples[number]
                assignments.deal([job_of(number, samples[number]) for number in given])
            case "finish" if held[seat]:
                number = held[seat].pop(random.randrange(len(held[seat])))
                load[seat] -= samples[number]
                assignments.finish(seat, [number])
            case "lose":
                assert list(assignments.lose(seat).lost) == held[seat]
                waiting, held[seat], load[seat] = held[seat] + waiting, [], 0
        assert [list(assignments.held(each)) for each in range(seats)] == list(held.values())
        assert assignments.room() == max(0, seats * 4 - sum(map(len, held.values())))


def test_a_result_nobody_was_asked_for_changes_no_load() -> None:
    assignments = Assignments(2, hold=4, restarts=0)
    assignments.finish(0, [99])
    assert numbers(assignments.deal([job_of(0), job_of(1)])) == {0: [0], 1: [1]}


@pytest.mark.parametrize("count", [0, 1])
def test_dealing_nothing_deals_nothing(count: int) -> None:
    assert len(Assignments(2, hold=1, restarts=0).deal([job_of(number) for number in range(count)])) == count
