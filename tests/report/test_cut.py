"""Samples drawn with top-p: the report says what replay changed, and warns where there was none."""

from __future__ import annotations

from tests.report import made
from tests.report.test_findings import run, titled
from trimtab.config.training import Rollout
from trimtab.report import findings_of


def test_what_replay_changed_is_said_with_its_number() -> None:
    settings = made.settings(rollout=Rollout(top_p=0.8))
    curves = {"head__kept_mass": 0.87, "head__outside_fraction": 0.0}
    found = titled(findings_of(run(50, settings=settings, **curves)), "Cut samples, replayed")
    assert found is not None
    assert found.level == "note"
    assert "left 0.87 of the probability" in found.sentence
    assert "they would stand at about 0.87." in found.sentence
    assert "outside" not in found.sentence
    fell = titled(findings_of(run(50, settings=settings, **curves | {"head__outside_fraction": 0.02})), "Cut samples")
    assert fell is not None
    assert "2 % of the tokens lay outside" in fell.sentence


def test_a_run_without_replay_is_warned_and_told_the_setting() -> None:
    settings = made.settings(rollout=Rollout(top_p=0.8, head="none"))
    found = titled(findings_of(run(50, settings=settings, ratio__mean=0.87)), "Ratios of a cut")
    assert found is not None
    assert found.level == "warning"
    assert "Mean ratio: 0.87" in found.sentence
    assert found.advice is not None
    assert found.advice.setting == "rollout.head=mask"


def test_a_whole_distribution_needs_no_word() -> None:
    for rollout in (Rollout(), Rollout(head="none"), Rollout(top_p=1.0, head="none")):
        found = findings_of(run(50, settings=made.settings(rollout=rollout)))
        assert titled(found, "Ratios of a cut") is None
        assert titled(found, "Cut samples") is None
