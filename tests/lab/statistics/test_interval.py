"""Intervals against scipy, closed forms and their own promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trimtab.errors import InputError
from trimtab.lab.statistics.intervals import acceleration, binomial_interval, bootstrap_interval

UNEVEN = np.log([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71])
"""No resample has the very mean of these but themselves: scipy counts such ties by their rounding."""
NUMBERS = st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=2, max_size=20)


@settings(max_examples=40, deadline=None)
@given(NUMBERS, st.floats(-2, 2).map(lambda value: round(value, 2)))
def test_shifting_every_value_shifts_the_interval(values: list[float], by: float):
    one, other = (bootstrap_interval(np.array(values) + shift, resamples=499) for shift in (0.0, by))
    for name in ("estimate", "lower", "upper"):
        assert getattr(other, name) == pytest.approx(getattr(one, name) + by, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(NUMBERS)
def test_the_bounds_lie_within_the_values_and_a_higher_level_is_never_narrower(values: list[float]):
    narrow, wide = (bootstrap_interval(np.array(values), level, resamples=499) for level in (0.8, 0.99))
    assert min(values) - 1e-12 <= wide.lower <= narrow.lower <= narrow.upper <= wide.upper <= max(values) + 1e-12


@pytest.mark.parametrize("level", [0.9, 0.95, 0.99])
def test_bca_is_scipys_with_the_same_draws(level: float):
    values = UNEVEN
    theirs = stats.bootstrap(
        (values,), np.mean, confidence_level=level, method="BCa", n_resamples=9999, rng=np.random.default_rng(0)
    ).confidence_interval
    ours = bootstrap_interval(values, level)
    assert (ours.lower, ours.upper) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    percentile = stats.bootstrap(
        (values,), np.mean, confidence_level=level, method="percentile", n_resamples=9999, rng=np.random.default_rng(0)
    ).confidence_interval
    assert abs(ours.lower - percentile.low) > 1e-3  # so it is not the plain percentile interval under another name


def test_the_acceleration_of_three_values_by_hand():
    # Left-out means 1.5, 1.5, 0; mean 1; d = −.5, −.5, 1; Σd³ = .75, Σd² = 1.5.
    assert acceleration(np.array([0.0, 0.0, 3.0])) == pytest.approx(0.75 / (6 * 1.5**1.5))
    assert acceleration(np.array([-1.0, 0.0, 1.0])) == 0


def test_equal_values_leave_no_interval_and_one_value_is_refused():
    found = bootstrap_interval(np.full(8, 0.1))
    assert (found.estimate, found.lower, found.upper) == (0.1, 0.1, 0.1)
    for bad in ([0.1], [], [0.1, float("nan")]):
        with pytest.raises(InputError, match="2 or more finite numbers"):
            bootstrap_interval(np.array(bad))


@pytest.mark.parametrize(("hits", "tries"), [(0, 8), (8, 8), (1, 8), (5, 12), (31, 32)])
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_shares_have_scipys_exact_interval(hits: int, tries: int, level: float):
    theirs = stats.binomtest(hits, tries).proportion_ci(level, "exact")
    ours = binomial_interval(hits, tries, level)
    assert (ours.lower, ours.upper) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_eight_of_eight_may_still_be_63_percent():
    # Closed form: (α/2)^(1/n) = 0.025^(1/8).
    assert binomial_interval(8, 8).lower == pytest.approx(0.025**0.125)
    with pytest.raises(InputError, match="9 of 8"):
        binomial_interval(9, 8)
