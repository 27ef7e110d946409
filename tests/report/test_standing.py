"""What a run is called that did not fall: no praise before its time, and none over a fault."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report import made
from tests.report.test_findings import run
from trimtab.lab import verdict as lab
from trimtab.report import findings_of
from trimtab.report.findings.faults import faults
from trimtab.report.findings.learning import verdict_word
from trimtab.report.findings.verdict import FULL, QUICK

RISES = {"eval__accuracy": made.rising(0.3, 0.95, 20)}


def test_lab_and_report_ask_for_the_same_steps() -> None:
    assert (lab.QUICK, lab.FULL) == (QUICK, FULL)


@pytest.mark.parametrize(
    ("steps", "called", "level"),
    [(30, "too early to say", "note"), (250, "stable so far", "note"), (400, "healthy", "good")],
)
def test_a_run_that_rose_is_called_healthy_after_enough_steps_only(steps: int, called: str, level: str) -> None:
    risen = run(steps, **RISES)
    assert verdict_word(risen) == called
    first = findings_of(risen)[0]
    assert (first.title.lower(), first.level) == (called, level)


@pytest.mark.parametrize(("steps", "called"), [(60, "too early to say"), (200, "flat")])
def test_a_curve_that_has_not_risen_yet_is_flat_only_once_it_could_have(steps: int, called: str) -> None:
    assert verdict_word(run(steps, eval__accuracy=0.3)) == called


@pytest.mark.parametrize(
    ("curves", "clause"),
    [
        ({"kept_fraction": 0.2}, "the gates keep 20 % of the tokens"),
        ({"train__skipped": lambda s: float(s % 50 == 0)}, "8 of 400 updates were skipped"),
        ({"rollout__truncated": 0.66}, "66 % of the responses never end"),
        ({"train__grad_norm": lambda s: float("nan") if s == 7 else 1.0}, "gradients were not finite"),
        (
            {"selection__kept_given_positive": 0.1, "selection__kept_given_negative": 0.4},
            "the filter keeps wrong answers more often than right ones",
        ),
    ],
)
def test_a_fault_stands_against_healthy_and_is_named(curves: dict[str, Any], clause: str) -> None:
    faulty = run(400, **RISES, **curves)
    assert verdict_word(faulty) == "needs a look"
    first = findings_of(faulty)[0]
    assert first.level == "warning"
    assert clause in first.sentence
    assert faults(made.run("healthy", steps=400)) == []


def test_a_short_run_with_every_fault_is_not_green() -> None:
    """30 steps, few right, 80 % of the tokens rejected, 66 % truncated, 3 updates skipped."""
    poor = run(
        30,
        eval__accuracy=made.rising(0.05, 0.175, 5),
        kept_fraction=0.2,
        rollout__truncated=0.66,
        train__skipped=lambda s: float(s in (3, 9, 20)),
    )
    assert verdict_word(poor) == "needs a look"
    assert not any(found.level == "good" for found in findings_of(poor))


def test_an_update_skipped_because_all_answers_agree_is_no_fault() -> None:
    agreed = {"advantage__groups": 16.0, "advantage__zero_variance_groups": lambda s: 16.0 if s % 20 == 0 else 4.0}
    often = {"train__skipped": lambda s: float(s % 20 == 0)}
    assert verdict_word(run(400, **RISES, **often, **agreed)) == "healthy"
    assert verdict_word(run(400, **RISES, **often)) == "needs a look"


def test_a_starved_run_is_called_starved_however_its_accuracy_looks() -> None:
    assert verdict_word(run(400, **RISES, kept_fraction=0.01)) == "starved"
    assert [found.title for found in findings_of(run(400, **RISES, kept_fraction=0.01))[:2]] == [
        "Rose while starved",
        "Starved",
    ]
    assert verdict_word(made.run("collapsed", steps=400)) == "collapsed"
