"""Kaplan–Meier against scipy and by hand."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trimtab.errors import InputError
from trimtab.lab.statistics.intervals import Lifetime, kaplan_meier

LIVES = [
    Lifetime(60, True),
    Lifetime(120, True),
    Lifetime(120, False),
    Lifetime(250, True),
    *[Lifetime(400, False)] * 4,
]


def test_the_product_by_hand_with_one_that_ceased_to_be_watched():
    # 8 at risk, 1 falls at 60: 7/8. 7 at risk, 1 falls at 120: 6/8. One is watched no more; 5 at risk, 1 falls at 250: 6/8 · 4/5.
    points = {each.step: each for each in kaplan_meier(LIVES)}
    assert [points[step].share for step in (0, 60, 120, 250, 400)] == pytest.approx([1, 7 / 8, 6 / 8, 0.6, 0.6])
    assert [points[step].at_risk for step in (0, 60, 120, 250, 400)] == [8, 8, 7, 5, 4]
    assert [each.share for each in kaplan_meier(LIVES) if each.step <= 249][-1] == pytest.approx(0.75)
    # Had the one that ceased been taken for standing to the end, 6 would have been at risk at 250.
    as_if = [Lifetime(400, False) if each == Lifetime(120, False) else each for each in LIVES]
    assert kaplan_meier(as_if)[-1].share == pytest.approx(5 / 8)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=2, max_size=24),
    st.sampled_from([0.9, 0.95, 0.99]),
)
def test_shares_and_log_log_bounds_are_scipys(lives: list[tuple[int, bool]], level: float):
    times, fell = np.array([step * 10 for step, _ in lives]), np.array([ended for _, ended in lives])
    found = kaplan_meier([Lifetime(int(step), bool(ended)) for step, ended in zip(times, fell, strict=True)], level)
    data = stats.CensoredData(uncensored=times[fell], right=times[~fell])
    theirs = stats.ecdf(data).sf
    with warnings.catch_warnings():  # where Greenwood's variance is not defined
        warnings.simplefilter("ignore", RuntimeWarning)
        bounds = theirs.confidence_interval(level, method="log-log")
    for point in found[1:]:
        assert point.share == pytest.approx(float(theirs.evaluate(point.step)), abs=1e-12)
        if 0 < point.share < 1:
            low, high = (float(each.evaluate(point.step)) for each in (bounds.low, bounds.high))
            assert (point.lower, point.upper) == pytest.approx((low, high), abs=1e-9)
        assert 0 <= point.lower <= point.share <= point.upper <= 1


def test_where_greenwood_says_nothing_the_bounds_are_exact():
    standing = kaplan_meier([Lifetime(400, False)] * 8)[-1]
    assert (standing.share, standing.upper) == (1, 1)
    assert standing.lower == pytest.approx(0.025**0.125)  # 63 %: eight that stand do not prove that all do
    fallen = kaplan_meier([Lifetime(100, True)] * 8)[-1]
    assert (fallen.share, fallen.lower) == (0, 0)
    assert fallen.upper == pytest.approx(1 - 0.025**0.125)
    with pytest.raises(InputError, match="one run or more"):
        kaplan_meier([])
