"""The word for an accuracy curve."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.report.findings.verdict import tolerance, verdict
from trimtab.report.series import Series


def evaluations(*values: float, every: int = 20) -> Series:
    return Series.of((place * every, value) for place, value in enumerate(values))


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ((0.31, 0.6, 0.85, 0.93, 0.95, 0.94), "healthy"),
        ((0.31, 0.9, 0.97, 0.97, 0.95, 0.05), "collapsed"),  # only the last evaluation shows it
        ((0.31, 0.9, 0.95, 0.9, 0.5, 0.36), "collapsed"),  # half of 0.95 is 0.475
        ((0.31, 0.6, 0.3, 0.12, 0.1, 0.11), "collapsed"),
        ((0.31, 0.9, 0.94, 0.9, 0.72, 0.66), "degraded"),
        ((0.31, 0.9, 0.95, 0.96, 0.05, 0.93), "recovered"),
        ((0.31, 0.05, 0.95, 0.96, 0.95, 0.95), "healthy"),  # a dip at the start is long past
        ((0.31, 0.31, 0.33, 0.30, 0.32, 0.31), "flat"),
        ((0.10, 0.12, 0.09, 0.08, 0.12, 0.05), "flat"),  # half of the best, but within noise
        ((0.5,), "unknown"),
        ((), "unknown"),
        ((float("nan"), 0.3, float("nan")), "unknown"),
    ],
)
def test_the_word_of_a_curve(values: tuple[float, ...], word: str) -> None:
    assert verdict(evaluations(*values), problems=256).word == word


def test_a_fall_lies_between_the_last_good_and_the_first_bad_evaluation() -> None:
    found = verdict(evaluations(0.3, 0.9, 0.97, 0.96, 0.38, 0.05), problems=256)
    assert found.fall == (60, 80)  # half of 0.97 is 0.485: 0.96 at step 60 stands, 0.38 at step 80 does not
    assert found.low == (100, 0.05)
    assert found.best == (40, 0.97)


def test_a_run_that_recovered_is_dated_by_its_deepest_dip() -> None:
    found = verdict(evaluations(0.3, 0.9, 0.95, 0.96, 0.9, 0.05, 0.93), problems=256)
    assert found.fall == (80, 100)
    assert found.low == (100, 0.05)


def test_few_problems_excuse_more() -> None:
    curve = evaluations(0.3, 0.8, 0.8, 0.6)
    assert verdict(curve, problems=1000).word == "degraded"
    assert verdict(curve, problems=16).word == "healthy"
    # sqrt((0.16 + 0.24) / 16) = 0.158; three of it: 0.474
    assert tolerance(0.8, 0.6, 16) == pytest.approx(0.4743, abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1) | st.just(float("nan")), max_size=30), st.integers(1, 2000))
def test_a_fall_is_dated_by_neighbouring_evaluations_after_which_the_best_was_halved_or_missed(
    values: list[float], problems: int
) -> None:
    curve = evaluations(*values)
    found = verdict(curve, problems=problems)
    assert (found.fall is not None) == (found.word in ("collapsed", "degraded", "recovered"))
    if found.fall is None or found.low is None:
        return
    steps = curve.finite.steps.tolist()
    assert steps.index(found.fall[1]) == steps.index(found.fall[0]) + 1
    assert found.low[0] >= found.fall[1]
    assert found.low[1] < found.best[1] - 0.02
