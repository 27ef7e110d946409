"""Findings on made-up curves of each kind: what is said, how gravely, and what is left unsaid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.report import made
from trimtab.report import Run, RunFinding, findings_of
from trimtab.report.findings.learning import verdict_word
from trimtab.report.findings.signs import predictors


def run(steps: int = 100, *, settings: Mapping[str, Any] | None = None, **curves: made.Curve | float) -> Run:
    """A run with these metrics only; `__` stands for `/` in a name."""
    named = {
        name.replace("__", "/"): (curve if callable(curve) else lambda step, v=curve: v)
        for name, curve in curves.items()
    }
    whole = made.settings(steps=steps) if settings is None else dict(settings)
    return Run(settings=whole, metrics=made.lines(steps, named, {"eval/accuracy": 10}))


def titled(found: list[RunFinding], title: str) -> RunFinding | None:
    return next((one for one in found if title in one.title), None)


def gated(name: str, **curves: made.Curve | float) -> dict[str, Any]:
    return {f"gate/{name}/{part}": curve for part, curve in curves.items()}


def test_a_collapse_and_the_sign_before_it_are_dated() -> None:
    found = findings_of(made.run("collapsed", steps=300))
    assert found[0].level == "alarm"
    assert found[0].title == "Collapsed"
    assert "between step 261 and step 281" in found[0].sentence
    sign = titled(found, "First sign")
    assert sign is not None
    assert sign.title == "First sign: mismatch KL"
    assert sign.step is not None
    assert 249 < sign.step < 261  # the mismatch starts to grow at step 249
    assert f"{281 - sign.step} steps before the fall was seen" in sign.sentence


def test_a_run_that_then_collapses_shows_a_measured_sign_with_its_reliability_and_a_healthy_one_does_not() -> None:
    sign = titled(findings_of(made.run("collapsed", steps=300)), "Mismatch KL over")
    assert sign is not None
    assert sign.level == "note"
    assert sign.step is not None
    assert 249 < sign.step < 281
    measured = predictors()[0]
    assert f"of {measured.falls} falls, {measured.lead:g} steps ahead at the median" in sign.sentence
    assert f"of {measured.stood} runs that stood" in sign.sentence
    assert titled(findings_of(made.run("healthy", steps=400)), "Mismatch KL over") is None


def test_a_healthy_run_has_no_warning_and_says_so() -> None:
    found = findings_of(made.run("healthy", steps=400))
    assert found[0].title == "Healthy"
    assert not {"alarm", "warning"} & {one.level for one in found}
    assert found[-1].title == "No warning sign"
    assert (
        found[-1].sentence == "Nothing out of the ordinary in gates, selection and gradients."
    )  # notes tell of the rest


def test_a_starved_run_is_called_starved_and_its_gate_is_named() -> None:
    starved = made.run("starved")
    found = findings_of(starved)
    assert verdict_word(starved) == "starved"
    assert titled(found, "Starved") is not None
    gate = titled(found, "A gate that rejects most")
    assert gate is not None
    assert "0-k2-sequence with bounds [−∞, 0.02] rejected 99 % of the tokens" in gate.sentence
    assert gate.panel == "gate/0-k2-sequence"


def test_the_verdict_stands_first_and_the_rest_by_gravity() -> None:
    levels = [("alarm", "warning", "note", "good").index(one.level) for one in findings_of(made.run("collapsed"))[1:]]
    assert levels == sorted(levels)


def test_a_fall_without_a_sign_says_that_there_was_none() -> None:
    found = findings_of(run(200, eval__accuracy=made.falling_at(made.rising(0.3, 0.9, 20), 150, 0.1), drift__k3=0.004))
    assert titled(found, "No early sign") is not None


def test_a_slow_drift_past_a_measured_bound_is_told_beside_the_fall_and_how_long_before_it() -> None:
    accuracy = made.falling_at(made.rising(0.3, 0.9, 20), 190, 0.1)
    found = findings_of(run(250, eval__accuracy=accuracy, drift__k3=lambda s: 0.004 * 1.05**s if s < 100 else 0.5))
    sign, none = titled(found, "Mismatch KL over"), titled(found, "No sudden sign")
    assert titled(found, "No early sign") is None
    assert sign is not None
    assert none is not None
    assert "note of its own" in none.sentence
    # 0.004 · 1.05^s passes 0.25 at s = 85; the mean over ten steps is past it at 90. The fall shows at 201.
    assert sign.step == 90
    fall = next(one for one in found if one.level == "alarm")
    assert f"and step {sign.step + 111}" in fall.sentence
    assert sign.sentence.endswith("Here the fall showed 111 steps later.")


def test_a_measured_bound_that_is_passed_after_the_fall_warned_of_nothing() -> None:
    accuracy = made.falling_at(made.rising(0.3, 0.9, 20), 100, 0.1)
    found = findings_of(run(200, eval__accuracy=accuracy, drift__k3=lambda s: 0.004 if s < 150 else 0.5))
    sign = titled(found, "Mismatch KL over")
    assert sign is not None
    assert sign.sentence.endswith("Here the run had fallen.")
    assert titled(found, "No early sign") is not None


def test_a_jump_of_mismatch_that_passes_is_a_note() -> None:
    found = findings_of(
        run(200, eval__accuracy=made.rising(0.3, 0.9, 20), drift__k3=lambda s: 0.2 if 100 <= s < 110 else 0.004)
    )
    jump = titled(found, "Mismatch jumped and accuracy held")
    assert jump is not None
    assert jump.level == "note"
    assert jump.step == 101


def test_a_jump_long_before_the_fall_is_not_its_sign() -> None:
    accuracy = made.falling_at(made.rising(0.3, 0.9, 20), 250, 0.1)
    found = findings_of(run(300, eval__accuracy=accuracy, drift__k3=lambda s: 0.2 if 100 <= s < 110 else 0.004))
    assert titled(found, "First sign") is None


def test_a_gate_that_never_fires_is_a_warning_and_an_observing_one_a_note() -> None:
    wide = {"metric": "ratio", "level": "sequence", "upper": 2.0, "lower": None, "action": "reject"}
    curves = gated("0-ratio-sequence", rejected_tokens=0.0, p01=0.98, p99=1.03)
    for action, level in (("reject", "warning"), ("observe", "note")):
        settings = {"correction": {"gates": [wide | {"action": action}]}}
        never = titled(findings_of(run(50, settings=settings, **curves)), "never fires")
        assert never is not None
        assert never.level == level
        assert "[0.98, 1.03]" in never.sentence
        assert "bounds [−∞, 2]" in never.sentence
        assert "With upper 1.03 it would act on about 1 %." in never.sentence


def test_a_gate_that_never_fires_names_no_bound_that_would_where_its_statistic_was_not_logged() -> None:
    wide = {"metric": "k2", "level": "sequence", "upper": 1.0, "action": "reject"}
    curves = gated("0-k2-sequence", rejected_tokens=0.0)
    never = titled(findings_of(run(50, settings={"correction": {"gates": [wide]}}, **curves)), "never fires")
    assert never is not None
    assert "would act" not in never.sentence


def test_a_gate_that_fires_now_and_then_is_not_mentioned() -> None:
    curves = gated("0-k2-sequence", rejected_tokens=lambda s: 0.1 if s % 10 == 0 else 0.0)
    assert titled(findings_of(run(50, **curves)), "gate") is None


def test_a_filter_that_keeps_wrong_answers_is_an_alarm() -> None:
    biased = {"selection__kept_given_positive": 0.1, "selection__kept_given_negative": 0.4}
    found = titled(findings_of(run(50, **biased, selection__net_advantage=-0.3)), "Keeps wrong answers")
    assert found is not None
    assert found.level == "alarm"
    assert "40 % of the tokens with negative advantage" in found.sentence
    assert "10 % of those with positive" in found.sentence
    assert "−0.3" in found.sentence


@pytest.mark.parametrize("positive", [0.4, 0.38, 0.9])
def test_a_filter_that_is_fair_or_keeps_right_answers_is_not_mentioned(positive: float) -> None:
    found = findings_of(run(50, selection__kept_given_positive=positive, selection__kept_given_negative=0.4))
    assert titled(found, "Keeps wrong answers") is None


def test_a_bias_of_a_few_steps_is_not_mentioned() -> None:
    short = {
        "selection__kept_given_positive": lambda s: 0.1 if 20 <= s < 26 else 0.9,
        "selection__kept_given_negative": 0.9,
    }
    assert titled(findings_of(run(50, **short)), "Keeps wrong answers") is None


def test_tokens_without_a_version_are_a_warning() -> None:
    found = titled(
        findings_of(run(50, staleness__coverage=lambda s: 0.8 if s == 7 else 1.0)), "Tokens without a version"
    )
    assert found is not None
    assert found.step == 8
    assert "80 %" in found.sentence
    assert "1 step in all" in found.sentence


@pytest.mark.parametrize(
    ("curves", "title", "level"),
    [
        ({"weight__ess": 0.1, "kept_fraction": 0.95}, "Few tokens own the batch", "warning"),
        ({"missing_fraction": lambda s: 0.02 if s == 48 else 0.0}, "Log-probs missing", "warning"),
        ({"train__grad_norm": lambda s: float("nan") if s == 5 else 1.0}, "Gradients not finite", "alarm"),
        ({"train__grad_norm": 40.0}, "Every step is clipped", "note"),
        ({"train__skipped": lambda s: float(s in (4, 5))}, "Updates skipped", "warning"),
        ({"rollout__truncated": 0.3}, "Responses hit the length limit", "warning"),
        ({"rollout__length": lambda s: 25.0 + s}, "Response length drifted", "note"),
        ({"rollout__failed": lambda s: 0.1 if s == 9 else 0.0}, "A verifier failed", "note"),
        ({"rollout__failed": lambda s: 0.1 if s == 48 else 0.0}, "A verifier failed", "warning"),
        ({"advantage__groups": 16.0, "advantage__zero_variance_groups": 15.0}, "Little left to learn from", "note"),
        ({"time__step": 1.0, "time__wait": 0.6}, "The learner waits", "note"),
        ({"staleness__dropped": 1.0}, "Groups dropped as too stale", "note"),
    ],
)
def test_each_other_trouble_is_found_where_it_is_and_nowhere_else(
    curves: dict[str, Any], title: str, level: str
) -> None:
    found = titled(findings_of(run(50, **curves)), title)
    assert found is not None
    assert found.level == level
    assert titled(findings_of(made.run("healthy", steps=400)), title) is None or title == "Little left to learn from"


def test_a_run_that_ended_early_says_why_and_one_under_way_does_not() -> None:
    short = made.lines(50, {"train/loss": lambda s: 0.0})
    event = {"kind": "stopped", "message": "20 steps without a usable update", "step": 49}
    stopped = Run(settings=made.settings(steps=160), metrics=short, events=[event], status="failed")
    found = titled(findings_of(stopped), "Ended early")
    assert found is not None
    assert "20 steps without a usable update" in found.sentence
    assert "Status: failed" in found.sentence
    under_way = findings_of(Run(settings=made.settings(steps=160), metrics=short, status="running"))
    assert titled(under_way, "Ended early") is None
    assert titled(under_way, "Still running") is not None


def test_policies_far_apart_are_a_warning_that_says_when_nothing_corrects() -> None:
    bare = {"correction": {"weight": {"level": "one"}, "gates": []}}
    found = titled(findings_of(run(50, settings=bare, drift__k3=0.08)), "far apart")
    assert found is not None
    assert "Nothing corrects for it" in found.sentence
    corrected = titled(findings_of(run(50, drift__k3=0.08)), "far apart")
    assert corrected is not None
    assert "Nothing corrects for it" not in corrected.sentence
    assert titled(findings_of(run(50, drift__k3=0.01)), "far apart") is None


def test_the_accuracy_before_the_first_step_counts_as_the_start() -> None:
    curve = made.lines(400, {"eval/accuracy": lambda s: 0.8}, {"eval/accuracy": 20})
    event = {"kind": "start", "message": "Held-out accuracy 0.234 before the first step.", "accuracy": 0.234}
    assert findings_of(Run(settings={}, metrics=curve))[0].title == "Flat"
    started = findings_of(Run(settings={}, metrics=curve, events=[event]))[0]
    assert started.title == "Healthy"
    assert "0.234 at the start" in started.sentence


def test_an_empty_run_has_one_finding() -> None:
    found = findings_of(Run(settings={}, metrics=()))
    assert [one.title for one in found] == ["Accuracy unknown"]


def test_groups_dropped_are_counted_once_though_every_step_logs_the_count_so_far() -> None:
    found = titled(findings_of(run(50, staleness__dropped=lambda s: float(min(s, 3)))), "Groups dropped as too stale")
    assert found is not None
    assert found.sentence.startswith("3 groups were sampled and never trained.")


def test_responses_no_verifier_could_score_are_said_to_be_left_out() -> None:
    found = titled(findings_of(run(50, rollout__failed=0.1)), "A verifier failed")
    assert found is not None
    assert found.sentence.endswith("They count neither in the baseline nor in training.")


def test_a_run_that_ends_without_groups_is_not_said_to_have_learnt_all_it_can() -> None:
    # 100 steps: 16 groups at first, none in the last fifth, when every verifier failed; nothing is divided by them.
    curves = {"advantage__groups": lambda s: 16.0 if s < 60 else 0.0, "advantage__zero_variance_groups": 1.0}
    assert titled(findings_of(run(100, **curves)), "Little left to learn from") is None
