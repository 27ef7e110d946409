"""Four ways in which a comparison says nothing, each planted and caught beside the verdict; and a sound one that is not accused."""

from __future__ import annotations

import pytest

from tests.lab.evidence.made import arms, claim, lab, run
from trimtab.lab.evidence.decide import claim_finding
from trimtab.lab.results import CellResult, LabResults


def notes(results: LabResults) -> list[str]:
    return [each.partition(":")[0] for each in claim_finding(claim(), results).notes]


def leveled(seeds: int, correction: str, late: float, **level: float) -> list[CellResult]:
    return [run("stale", correction, seed, late + 0.003 * (seed % 5), level=level) for seed in range(seeds)]


def test_a_sound_comparison_has_no_note():
    assert notes(lab(*arms())) == []


def test_a_clip_that_never_clips_is_said():
    idle = lab(arms()[0], leveled(8, "off", 0.2, clip_high=0.0, clip_low=0.0))
    assert notes(idle) == ["Idle clip"]
    assert "off (stale)" in claim_finding(claim(), idle).notes[0]
    assert notes(lab(arms()[0], leveled(8, "off", 0.2, clip_high=0.0, clip_low=0.001))) == []


def test_a_gate_that_never_fires_is_said_and_a_correction_without_gates_is_not_accused():
    idle = lab(leveled(8, "k3-rs", 0.9, kept=1.0), arms()[1])
    assert notes(idle) == ["Idle gate"]
    assert "k3-rs (stale) kept every token" in claim_finding(claim(), idle).notes[0]
    assert notes(lab(leveled(8, "k3-rs", 0.9, kept=0.9999), arms()[1])) == []
    assert notes(lab(arms()[0], leveled(8, "off", 0.2, kept=1.0))) == []


@pytest.mark.parametrize(("wrong", "said"), [(0.98, []), (1.0, ["Idle gate"])])
def test_a_gate_that_gives_weight_0_is_not_idle_though_every_token_stays_in_the_mask(wrong: float, said: list[str]):
    made = lab(leveled(8, "k3-rs", 0.9, kept=1.0, kept_right=1.0, kept_wrong=wrong), arms()[1])
    zeroes = {"gates": ({"metric": "ratio_deviation", "action": "zero"},)}
    assert notes(made.but(corrections={**made.corrections, "k3-rs": zeroes})) == said


@pytest.mark.parametrize(("same", "said"), [(8, "in every seed"), (3, "in 3 of 8 seeds")])
def test_two_rows_that_are_one_run_are_said(same: int, said: str):
    first, second = arms()
    twins = [
        each.but(correction="off", name=other.name) if each.seed < same else other
        for each, other in zip(first, second, strict=True)
    ]
    found = claim_finding(claim(), lab(first, twins))
    assert next(note for note in found.notes if note.startswith("One run")).count(said) == 1
    if same == 8:
        assert (
            found.decision.outcome == "not decided"
        )  # eight equal pairs may have missed others, and the note says why


def test_entropy_under_the_limit_in_every_arm_is_said_and_in_one_it_is_not():
    low = {"entropy": 0.005}
    assert notes(lab(leveled(8, "k3-rs", 0.9, **low), leveled(8, "off", 0.2, **low))) == ["Low entropy"]
    assert notes(lab(leveled(8, "k3-rs", 0.9, **low), arms()[1])) == []
