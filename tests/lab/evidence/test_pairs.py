"""Pairs: what two arms must share, and each way in which a pair that is none is caught."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.evidence.made import arms, claim, lab, pairing
from trimtab.lab.cell import pairing_of
from trimtab.lab.evidence.decide import claim_finding
from trimtab.lab.evidence.pairs import paired_arms
from trimtab.lab.results import CellResult

Arms = tuple[list[CellResult], list[CellResult]]


def test_sound_pairs_have_no_fault_decide_and_say_what_they_share():
    first, second = arms()
    found = claim_finding(claim(), lab(first, second))
    assert found.pairs.faults == ()
    assert found.pairs.shares == (
        "8 pairs with the same warm start and the same prompts in the same order (400 groups looked at per run, seed 0: prompts )"
    )
    assert (found.decision.outcome, found.decision.seeds) == ("confirmed", 8)
    assert not found.is_open


def replaced(arm: list[CellResult], seed: int, **changes: object) -> list[CellResult]:
    return [each.but(**changes) if each.seed == seed else each for each in arm]


def failed(arms: Arms) -> Arms:
    broken = CellResult(
        scenario="stale",
        correction="off",
        seed=3,
        name="stale--off--seed-3",
        fingerprint="f",
        status="failed",
        message="no disk",
    )
    return arms[0], [broken if each.seed == 3 else each for each in arms[1]]


FAULTS: dict[str, tuple[Callable[[Arms], Arms], str]] = {
    "a seed that one arm lacks": (
        lambda arms: (arms[0], [each for each in arms[1] if each.seed != 3]),
        "Seed 3 is lost: one arm goes on to seed 7 without it.",
    ),
    "a seed that failed": (failed, "Seed 3 is lost: stale--off--seed-3 failed: no disk"),
    "another warm start": (
        lambda arms: (arms[0], replaced(arms[1], 2, pairing=pairing(2, start="others"))),
        "with seed 2 they began with other weights",
    ),
    "other prompts": (
        lambda arms: (arms[0], replaced(arms[1], 2, pairing=pairing(2, prompts="others"))),
        "with seed 2 they trained on other prompts, or in another order",
    ),
    "a stuck batch": (
        lambda arms: tuple(replaced(each, 5, pairing=pairing(5, stuck=33)) for each in arms),  # pyright: ignore[reportReturnType]
        "stale--k3-rs--seed-5 is stuck: it trained on the same prompts for 33 steps in a row.",
    ),
    "a seed that nothing was drawn by": (
        lambda arms: tuple(replaced(each, 5, pairing=pairing(5, prompts="prompts 4")) for each in arms),  # pyright: ignore[reportReturnType]
        "The seed is lost: stale--k3-rs--seed-4 and stale--k3-rs--seed-5 trained on the same prompts.",
    ),
    "one run under two seeds": (
        lambda arms: (
            arms[0],
            replaced(arms[1], 5, accuracy=arms[1][4].accuracy, curves=arms[1][4].curves, medians=arms[1][4].medians),
        ),
        "stale--off--seed-4 and stale--off--seed-5 are one and the same run",
    ),
    "runs that recorded nothing": (
        lambda arms: (arms[0], replaced(arms[1], 0, pairing=None)),
        "Seeds 0 did not record what they began with",
    ),
    "runs of another length": (
        lambda arms: (arms[0], replaced(arms[1], 1, steps=390)),
        "some runs have 390 steps and some 400",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_pair_that_is_none_is_caught_and_decides_nothing(name: str):
    plant, sentence = FAULTS[name]
    first, second = plant(arms())
    found = claim_finding(claim(), lab(first, second))
    said = [*found.pairs.faults, *filter(None, [found.pairs.lost])]
    assert any(sentence in fault for fault in said), said
    assert found.decision.outcome == "not decided"
    assert found.decision.reason == said[0]
    assert not found.is_open  # more seeds do not mend it


def test_an_arm_that_is_only_not_as_far_yet_has_lost_nothing():
    first, second = arms()
    found = paired_arms(first, second[:7])
    assert found.seeds == tuple(range(7))
    assert (found.faults, found.lost) == ((), None)
    assert claim_finding(claim(), lab(first, second[:7])).is_open


def test_what_eight_pairs_decided_stays_decided_when_another_claim_takes_one_arm_further_or_a_later_seed_fails():
    (first, _), (_, second) = arms(12), arms(8)
    assert claim_finding(claim(), lab(first, second)).decision.outcome == "confirmed"
    whole = arms(12)
    broken = whole[1][9].but(status="failed", message="no disk", verdict=None)
    found = claim_finding(claim(), lab(whole[0], [*whole[1][:9], broken, *whole[1][10:]]))
    assert (found.decision.outcome, found.decision.seeds) == ("confirmed", 8)
    assert found.pairs.lost is not None


def test_what_a_claim_does_not_share_is_not_asked_for():
    first, second = arms()
    unlike = [each.but(pairing=pairing(each.seed, start="s", prompts=f"other {each.seed}")) for each in second]
    assert paired_arms(first, unlike, ()).faults == ()
    assert len(paired_arms(first, unlike).faults) == 2


def test_digests_follow_weights_problems_and_order_and_not_the_responses():
    rows = [(0, 15, "a"), (0, 15, "a"), (1, 31, "b"), (2, 47, "c")]
    one = pairing_of("w", rows)
    assert one == pairing_of("w", list(dict.fromkeys(rows)))
    assert (one.recorded, one.stuck) == (3, 1)
    others = [
        [(0, 15, "b"), (1, 31, "a"), (2, 47, "c")],
        [(0, 15, "a"), (1, 31, "b")],
        [(1, 15, "a"), (2, 31, "b"), (3, 47, "c")],
    ]
    assert len({one.prompts, *(pairing_of("w", each).prompts for each in others)}) == 4
    assert pairing_of("v", rows).start == "v"


def test_a_batch_is_stuck_for_as_many_steps_as_it_came_again():
    rows = [(step, step, "same" if 10 <= step < 43 else str(step)) for step in range(60)]
    assert pairing_of("w", rows).stuck == 33
    gap = [(step, step, "same") for step in (0, 1, 7, 8, 9)]  # steps between were not recorded
    assert pairing_of("w", gap).stuck == 3
