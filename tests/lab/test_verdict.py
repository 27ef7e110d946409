"""Verdicts on curves of every kind."""

from __future__ import annotations

import pytest

from tests.lab import curves
from tests.lab.curves import series
from trimtab.errors import ConfigError
from trimtab.lab.results import LabVerdict
from trimtab.lab.verdict import cell_verdict, starved_share, tally
from trimtab.report.series import Series

CONTROL = series(curves.CONTROL)


def word(pairs: list[tuple[int, float]], *, starved: float = 0.0, control: Series | None = CONTROL) -> str:
    return cell_verdict(series(pairs), starved, control=control, problems=256, steps=pairs[-1][0]).word


def test_a_fall_in_the_last_twenty_steps_is_a_collapse_though_the_mean_of_two_evaluations_hides_it():
    found = cell_verdict(series(curves.LATE_FALL), 0.0, control=CONTROL, problems=256, steps=300)
    assert found.word == "collapsed"
    assert (found.last, found.late_low, found.best) == (0.05, 0.05, 0.97)
    assert found.fell == (280, 290)


def test_a_run_that_keeps_nothing_and_learns_nothing_is_starved():
    assert word(curves.FROZEN, starved=1.0) == "starved"


def test_a_frozen_run_that_keeps_its_samples_is_degraded_not_starved():
    assert word(curves.FROZEN, starved=0.0) == "degraded"
    assert word(curves.FROZEN, control=None) == "flat"  # a control: nothing to be behind


def test_a_run_that_starves_and_falls_is_called_collapsed():
    assert word(curves.PUSHED_DOWN, starved=1.0) == "collapsed"


def test_half_of_the_steps_without_food_are_not_yet_starvation():
    assert word(curves.HEALTHY, starved=0.5) == "healthy"
    assert word(curves.HEALTHY, starved=0.51) == "starved"


def test_a_late_dip_that_recovers_is_degraded_with_or_without_a_control():
    assert word(curves.DIPPED) == "degraded"
    assert word(curves.DIPPED, control=None) == "degraded"


def test_an_early_dip_is_forgiven():
    pairs = [(0, 0.31), (40, 0.8), (80, 0.1), *curves.HEALTHY[2:]]
    assert word(pairs) == "healthy"


def test_a_run_that_ends_under_its_start_has_collapsed_though_it_never_rose():
    # 0.17 is above half of its best, 0.31 / 2 = 0.155
    assert word(curves.UNDER_START) == "collapsed"


def test_clearly_under_the_control_is_degraded():
    assert word(curves.DEGRADED) == "degraded"


def test_as_low_as_its_control_is_not_degraded():
    assert word(curves.DEGRADED, control=series(curves.DEGRADED)) == "healthy"


def test_the_margin_is_a_tenth_beyond_three_standard_errors():
    # At 0.95 and 0.8: 3 · √((0.0475 + 0.16) / 256) = 0.085; so 0.95 − 0.185 = 0.765 is the line.
    flat = [(0, 0.31), (200, 0.95), (300, 0.95), (400, 0.95)]
    control = series(flat)
    assert word([*flat[:-1], (400, 0.79)], control=control) == "healthy"
    assert word([*flat[:-1], (400, 0.75)], control=control) == "degraded"


def test_nothing_is_called_healthy_before_400_steps():
    short = [(step * 2 // 5, value) for step, value in curves.HEALTHY]
    control = series([(step * 2 // 5, value) for step, value in curves.CONTROL])
    assert cell_verdict(series(short), 0.0, control=control, problems=256, steps=160).word == "stable so far"
    assert cell_verdict(series(curves.HEALTHY), 0.0, control=CONTROL, problems=256, steps=399).word == "stable so far"
    assert word(curves.HEALTHY) == "healthy"


def test_a_slow_run_is_said_to_be_perhaps_only_slower():
    rising = [(0, 0.3), (80, 0.4), (160, 0.5), (240, 0.6), (320, 0.7), (400, 0.75)]
    found = cell_verdict(series(rising), 0.0, control=CONTROL, problems=256, steps=400)
    assert found.word == "degraded"
    assert "perhaps only slower" in found.reason
    assert "slower" not in cell_verdict(series(curves.DIPPED), 0.0, control=CONTROL, problems=256, steps=400).reason


def test_one_evaluation_says_nothing():
    assert word([(0, 0.3)]) == "unknown"


@pytest.mark.parametrize(("kept", "share"), [([0.0, 0.04, 0.05, 1.0], 0.5), ([1.0], 0.0), ([], 0.0)])
def test_a_step_starves_under_five_percent(kept: list[float], share: float):
    assert starved_share(Series.of(enumerate(kept))) == share


def test_a_tally_names_the_worst_first():
    assert tally(["healthy", "collapsed", "healthy"]) == "1 collapsed, 2 healthy"


def test_a_run_that_fell_late_and_came_back_is_not_said_to_be_slower():
    dented = [(0, 0.28), (100, 0.75), (200, 0.84), (280, 0.86), (330, 0.57), (360, 0.8), (400, 0.88)]
    found = cell_verdict(series(dented), 0.0, control=CONTROL, problems=256, steps=400)
    assert (found.word, found.late_low) == ("degraded", 0.57)
    assert found.reason == "late lowest 0.57, control 0.94; it had 0.86 before, and came back to 0.88"


def test_a_control_that_never_left_its_start_is_flat_and_its_remark_says_so() -> None:
    # One answer of 200: 0.005 is within the noise of 0.
    found = cell_verdict(
        series([(0, 0.0), (10, 0.005), (20, 0.0), (30, 0.005)]), 0.0, control=None, problems=200, steps=30
    )
    assert (found.word, found.reason) == ("flat", "never left its start (0): best 0.005, ends at 0.005")


def test_a_book_of_before_is_read_with_the_words_of_today() -> None:
    given = {"word": "not collapsed yet", "reason": "", "start": 0.1, "best": 0.9, "last": 0.9, "late_low": 0.8}
    assert LabVerdict.from_settings(given).word == "stable so far"


@pytest.mark.parametrize("given", [[], {}, 3, None])
def test_a_word_that_is_no_text_is_refused_in_one_sentence(given: object) -> None:
    verdict = {"word": given, "reason": "", "start": 0.0, "best": 0.0, "last": 0.0, "late_low": 0.0}
    with pytest.raises(ConfigError, match="LabVerdict"):
        LabVerdict.from_settings(verdict)
