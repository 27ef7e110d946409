"""Survival curves: counts of the runs that stand, with exact intervals."""

from __future__ import annotations

import pytest
from scipy import stats

from trimtab.errors import InputError
from trimtab.lab.statistics.intervals import Lifetime, survival_curve

LIVES = [Lifetime(60, True), Lifetime(120, True), Lifetime(120, True), *[Lifetime(400, False)] * 5]


def test_shares_are_counts_of_the_runs_that_stand_after_each_fall() -> None:
    points = {each.step: each for each in survival_curve(LIVES)}
    assert [points[step].share for step in (0, 60, 120, 400)] == [1, 7 / 8, 5 / 8, 5 / 8]


def test_each_share_has_the_exact_interval_of_its_count() -> None:
    last = survival_curve(LIVES, 0.9)[-1]
    theirs = stats.binomtest(5, 8).proportion_ci(0.9, "exact")
    assert (last.lower, last.upper) == pytest.approx((theirs.low, theirs.high), abs=1e-9)
    standing = survival_curve([Lifetime(400, False)] * 8)[-1]
    assert standing.lower == pytest.approx(0.025**0.125)  # 63 %: eight that stand do not prove that all do
    fallen = survival_curve([Lifetime(100, True)] * 8)[-1]
    assert (fallen.share, fallen.lower) == (0, 0)
    assert fallen.upper == pytest.approx(1 - 0.025**0.125)


def test_no_run_and_runs_of_different_length_are_refused() -> None:
    with pytest.raises(InputError, match="one run or more"):
        survival_curve([])
    with pytest.raises(InputError, match="400 steps, got a shorter one"):
        survival_curve([Lifetime(120, False), Lifetime(400, False)])
