"""ROC areas against scipy and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trimtab.lab.statistics.intervals import roc_area, roc_interval


def test_four_cases_by_hand():
    # Positives 2 and 4, negatives 1 and 3: 2>1, 4>1, 4>3 and not 2>3.
    assert roc_area(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, True, False, True])) == 0.75
    assert roc_area(np.ones(4), np.array([False, True, False, True])) == 0.5
    assert math.isnan(roc_area(np.ones(4), np.ones(4, dtype=bool)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=30))
def test_the_area_is_mann_whitneys_u_over_all_pairs_and_turns_over_with_the_scores(cases: list[tuple[int, bool]]):
    scores, positive = np.array([s for s, _ in cases], dtype=float), np.array([p for _, p in cases])
    area = roc_area(scores, positive)
    if positive.all() or not positive.any():
        assert math.isnan(area)
        return
    u = stats.mannwhitneyu(scores[positive], scores[~positive]).statistic
    assert area == pytest.approx(u / (positive.sum() * (~positive).sum()))
    assert roc_area(-scores, positive) == pytest.approx(1 - area)


def test_the_interval_narrows_with_cases_and_holds_half_for_noise():
    rng = np.random.default_rng(0)
    few, many = (
        roc_interval(rng.normal(size=n), np.arange(n) % 2 == 0, np.arange(n), resamples=499) for n in (20, 400)
    )
    assert few.upper - few.lower > 2 * (many.upper - many.lower)
    assert many.lower < 0.5 < many.upper
    positive = np.arange(400) % 2 == 0
    clear = roc_interval(rng.normal(size=400) + 1.5 * positive, positive, np.arange(400), resamples=499)
    # Two normal kinds 1.5 apart: Φ(1.5/√2) = 0.856.
    assert clear.lower < 0.856 < clear.upper
    assert clear.lower > 0.75


def test_ten_copies_of_a_run_are_one_run():
    rng = np.random.default_rng(2)
    scores, positive = rng.normal(size=30), np.arange(30) % 3 == 0
    once = roc_interval(scores, positive, np.arange(30), resamples=499)
    copied = np.repeat(scores, 10), np.repeat(positive, 10)
    by_run, by_case = (
        roc_interval(*copied, ids, resamples=499) for ids in (np.repeat(np.arange(30), 10), np.arange(300))
    )
    assert (by_run.lower, by_run.upper) == pytest.approx((once.lower, once.upper))
    assert by_case.upper - by_case.lower < 0.6 * (by_run.upper - by_run.lower)
