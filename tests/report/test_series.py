"""Smoothing, onsets and thinning of a curve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.report.series import Series, onsets, thin_series

numbers = st.floats(-1e6, 1e6) | st.just(float("nan")) | st.just(float("inf"))


def series(*values: float, first: int = 0) -> Series:
    return Series.of((first + place, value) for place, value in enumerate(values))


def jump(before: float, after: float, at: int = 20, length: int = 40) -> Series:
    return series(*(before if step < at else after for step in range(length)))


def test_steps_are_sorted_and_the_later_line_of_a_step_stands() -> None:
    found = Series.of([(3, 1.0), (1, 2.0), (3, 9.0)])
    assert found.steps.tolist() == [1, 3]
    assert found.values.tolist() == [2.0, 9.0]


def test_a_running_median_ignores_one_wild_step_and_what_is_no_number() -> None:
    assert series(1, 1, 99, 1, 1).smooth(3).values.tolist() == [1, 1, 1, 1, 1]
    assert series(1, float("nan"), 3).smooth(3).values.tolist() == [2, 2]  # (1, 3) at either end: 2


@settings(max_examples=40, deadline=None)
@given(st.lists(numbers, min_size=0, max_size=300), st.integers(1, 40))
def test_thinning_keeps_the_extremes_and_the_order(values: list[float], buckets: int) -> None:
    whole = series(*values)
    thin = thin_series(whole, buckets)
    assert len(thin) <= max(2 * buckets, 1)
    assert (np.diff(thin.steps) > 0).all()
    if len(whole.finite):
        assert thin.finite.values.min() == whole.finite.values.min()
        assert thin.finite.values.max() == whole.finite.values.max()


def test_a_thinned_gap_stays_a_gap() -> None:
    values = [1.0] * 100 + [float("nan")] * 100 + [1.0] * 100
    thin = thin_series(series(*values), 30)
    assert np.isnan(thin.values).sum() == 10  # 300 values in 30 buckets: ten of them hold nothing else


def test_a_tenfold_rise_within_the_window_is_an_onset() -> None:
    (found,) = onsets(jump(0.004, 0.05), factor=10.0, window=10, floor=0.02, way="rise")
    assert (found.step, found.before, found.after) == (20, 0.004, 0.05)
    assert found.since < found.step <= found.since + 10


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (0.004, 0.03, "7.5 times is not ten"),
        (0.0001, 0.01, "a hundredfold under the floor is noise"),
        (0.05, 0.004, "a fall is not a rise"),
    ],
)
def test_what_is_no_onset(before: float, after: float, why: str) -> None:
    assert onsets(jump(before, after), factor=10.0, window=10, floor=0.02, way="rise") == [], why


def test_a_slow_rise_is_no_onset() -> None:
    slow = series(*(0.001 * 10 ** (step / 50) for step in range(150)))  # tenfold every 50 steps
    assert onsets(slow, factor=10.0, window=10, floor=0.02, way="rise") == []


def test_one_wild_step_is_no_onset() -> None:
    assert onsets(series(*[0.004] * 20, 5.0, *[0.004] * 20), factor=10.0, window=10, floor=0.02, way="rise") == []


def test_a_fall_is_found_and_a_curve_that_comes_back_can_fall_again() -> None:
    twice = series(*[0.9] * 20, *[0.2] * 20, *[0.9] * 20, *[0.2] * 20)
    found = onsets(twice, factor=2.0, window=10, floor=0.1, way="fall")
    assert [onset.step for onset in found] == [20, 60]


def test_a_curve_that_stays_up_is_one_onset() -> None:
    assert len(onsets(jump(0.004, 0.05, at=20, length=200), factor=10.0, window=10, floor=0.02, way="rise")) == 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 60), st.floats(0, 10)), max_size=40))
def test_every_onset_is_what_it_says(pairs: list[tuple[int, float]]) -> None:
    whole = Series.of(pairs)
    smooth = dict(zip(whole.smooth(3).steps.tolist(), whole.smooth(3).values.tolist(), strict=True))
    for found in onsets(whole, factor=3.0, window=5, floor=0.5, way="rise"):
        assert 0 < found.step - found.since <= 5
        assert (smooth[found.since], smooth[found.step]) == (found.before, found.after)
        assert found.after >= 3 * max(found.before, 0.5 / 3)
        near = [value for step, value in smooth.items() if found.step - 5 <= step < found.step]
        assert found.before == min(near)
