"""The exact test against scipy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trimtab.lab.statistics.sign_flip import EXACT, sign_flip_p

SOME = [0.3, -0.1, 0.2, 0.05, 0.4, -0.02, 0.1, 0.33]


def test_three_differences_by_hand():
    # ±1 ±2 ±1: three of the eight sums are at least 2, seven are at least −2, one is at least 4.
    assert sign_flip_p(np.array([1.0, 2.0, -1.0])) == 3 / 8
    assert sign_flip_p(np.array([-1.0, -2.0, 1.0])) == 7 / 8
    assert sign_flip_p(np.array([1.0, 2.0, 1.0])) == 1 / 8


@pytest.mark.parametrize("values", [SOME, [-each for each in SOME], [0.1, 0.1, 0.1, -0.1]])
def test_it_is_scipys_permutation_test_of_signs(values: list[float]):
    theirs = stats.permutation_test(
        (np.array(values),), np.sum, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    assert sign_flip_p(np.array(values)) == pytest.approx(theirs.pvalue, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=1, max_size=10))
def test_both_sides_make_one_and_what_ties(values: list[int]):
    exact = np.array(values) / 100
    both = sign_flip_p(exact) + sign_flip_p(-exact)
    signs = np.array(np.meshgrid(*[[1, -1]] * len(values))).reshape(len(values), -1)
    ties = (signs.T @ np.abs(np.array(values)) == sum(values)).mean()
    assert both == pytest.approx(1 + ties)


def test_beyond_the_exact_size_draws_come_near_and_never_say_zero():
    rng = np.random.default_rng(1)
    values = rng.normal(0.3, 1.0, EXACT + 4)
    normal = stats.norm.sf(values.sum() / np.sqrt((values**2).sum()))
    assert sign_flip_p(values) == pytest.approx(normal, abs=0.02)
    assert 0 < sign_flip_p(np.ones(60)) < 1e-4
