"""Who waits for whom: staleness at its bound is judged by what was waited for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.report import made
from tests.report.test_findings import run, titled
from trimtab.config.training import Rollout
from trimtab.report import RunFinding, findings_of
from trimtab.report.findings.pace import pace

AT_BOUND = {"staleness__oldest_max": 4.0, "staleness__oldest_mean": 3.8}
FULL = {
    "staleness__in_queue": 48.0
}  # 16 groups a step and a bound of 4: three whole batches ready beside the one taken


def at_bound(steps: int = 50, **changes: Any) -> RunFinding | None:
    return titled(findings_of(run(steps, **(AT_BOUND | changes))), "Staleness sits at its bound")


def test_samplers_that_fill_the_queue_are_ahead_and_a_smaller_bound_is_offered() -> None:
    found = at_bound(time__step=0.515, time__wait=0.019, **FULL)
    assert found is not None
    assert "The samplers are ahead: of the learner's time 3.7 % went into waiting" in found.sentence  # 0.019 / 0.515
    assert "3 whole batches lay ready" in found.sentence
    assert "learner is ahead" not in found.sentence
    assert found.advice is not None
    assert found.advice.setting == "rollout.max_staleness=2"


def test_a_learner_that_waits_is_ahead_and_a_smaller_bound_is_said_to_cost() -> None:
    found = at_bound(time__step=1.0, time__wait=0.4, staleness__in_queue=0.0)
    assert found is not None
    assert "The learner is ahead of its samplers: of the learner's time 40 %" in found.sentence
    assert "A smaller bound would cost more" in found.sentence
    assert "samplers are ahead" not in found.sentence


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"time__step": 1.0, "time__wait": 0.15, **FULL}, "Neither is clearly ahead"),
        ({"time__step": 1.0, "time__wait": 0.02, "staleness__in_queue": 8.0}, "Neither is clearly ahead"),
        ({}, "who is ahead of whom is not known"),
    ],
)
def test_where_neither_is_shown_to_be_ahead_neither_is_said_to_be(changes: dict[str, Any], said: str) -> None:
    found = at_bound(**changes)
    assert found is not None
    assert said in found.sentence
    assert "are ahead:" not in found.sentence
    assert found.advice is None


def test_under_a_bound_of_one_nothing_smaller_is_offered() -> None:
    settings = made.settings(steps=50, rollout=Rollout(max_staleness=1))
    found = at_bound(settings=settings, time__step=1.0, time__wait=0.01, staleness__in_queue=0.0)
    assert found is not None
    assert "The only smaller bound is 0" in found.sentence
    assert found.advice is None


def test_data_younger_than_the_bound_is_not_mentioned() -> None:
    assert at_bound(staleness__oldest_max=2.0, time__step=1.0, time__wait=0.01, **FULL) is None


def test_in_lockstep_staleness_is_exact_and_waiting_is_sampling_so_neither_is_mentioned() -> None:
    lockstep = made.settings(steps=50) | {"backend": "lockstep"}
    assert at_bound(settings=lockstep, time__step=1.0, time__wait=0.6) is None
    found = findings_of(run(50, settings=lockstep, **AT_BOUND, time__step=1.0, time__wait=0.6))
    assert titled(found, "The learner waits") is None


def test_the_start_of_the_samplers_is_no_waiting() -> None:
    # 3.4 s before the first batch, then 0.01 s of 0.3 s: over all steps 20 %, after the pipeline is filled 3.3 %
    found = pace(
        run(
            60,
            time__step=lambda s: 3.7 if s == 0 else 0.3,
            time__wait=lambda s: 3.4 if s == 0 else 0.01,
            staleness__in_queue=lambda s: 0.0 if s == 0 else 48.0,
        )
    )
    assert found is not None
    assert found.waited == pytest.approx(0.01 / 0.3)
    assert not found.learner_waits
    assert found.samplers_wait


@pytest.mark.parametrize(
    ("rollout", "setting"),
    [
        ({"max_staleness": 0}, "rollout.max_staleness=1"),  # they take turns
        ({"max_staleness": 1, "slots": 512}, "rollout.max_staleness=2"),  # 2 · 16 · 8 = 256 responses for 512 places
        (
            {"max_staleness": 4, "samplers": 2},
            "rollout.samplers=3",
        ),  # 5 · 128 responses for 256 places: never out of work
    ],
)
def test_what_shortens_waiting_depends_on_what_the_samplers_lack(rollout: dict[str, Any], setting: str) -> None:
    settings = made.settings(steps=50, rollout=Rollout(**rollout))
    found = titled(findings_of(run(50, settings=settings, time__step=1.0, time__wait=0.4)), "The learner waits")
    assert found is not None
    assert found.advice is not None
    assert found.advice.setting == setting
    assert titled(findings_of(run(50, settings=settings, time__step=1.0, time__wait=0.1)), "The learner waits") is None
