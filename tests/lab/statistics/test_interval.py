"""Intervals against scipy, closed forms, and by simulation against what their labels promise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trimtab.errors import InputError
from trimtab.lab.statistics.decision import LEVEL
from trimtab.lab.statistics.intervals import (
    binomial_interval,
    mean_interval,
    paired_share_interval,
    student_quantile,
)

SKEWED = np.array([0.02, 0.01, 0.09, 0.84, 0.83, 0.04, 0.03, 0.05])
NUMBERS = st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=8, max_size=20)
Draw = Callable[[np.random.Generator, int], np.ndarray]
DIFFERENCES: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(0.3, 0.2, n), 0.3),
    "skewed": (lambda rng, n: 0.1 * rng.exponential(1.0, n), 0.1),
    "skewed downwards": (lambda rng, n: 0.5 - 0.1 * rng.exponential(1.0, n), 0.4),
    "two-point, even": (lambda rng, n: 0.8 * (rng.random(n) < 0.5), 0.4),
    "two-point, one in three": (lambda rng, n: 0.8 * (rng.random(n) < 1 / 3), 0.8 / 3),
    "two-point, one in five": (lambda rng, n: 0.8 * (rng.random(n) < 0.2), 0.16),
}
"""How differences are drawn, and their mean."""
SAMPLES = 1200


def covered(draw: Draw, mean: float, count: int, interval: Callable[[np.ndarray], tuple[float, float]]) -> float:
    """The share of samples of so many differences whose interval contains the mean."""
    rng = np.random.default_rng(count)
    bounds = [interval(draw(rng, count)) for _ in range(SAMPLES)]
    return float(np.mean([lower - 1e-9 <= mean <= upper + 1e-9 for lower, upper in bounds]))


def ours(values: np.ndarray) -> tuple[float, float]:
    found = mean_interval(values, LEVEL)
    return found.lower, found.upper


def percentile(values: np.ndarray) -> tuple[float, float]:
    """The plain bootstrap, which is too short."""
    means = np.random.default_rng(0).choice(values, (499, len(values))).mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


@pytest.mark.parametrize("count", [8, 12, 16])
@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_interval_of_a_mean_covers_what_its_label_says(name: str, count: int) -> None:
    """Within a hundredth of the label and two standard errors of the simulation (0.6 of a hundredth)."""
    assert covered(*DIFFERENCES[name], count, ours) >= LEVEL - 0.016


def test_the_plain_bootstrap_would_not_have_passed() -> None:
    assert covered(*DIFFERENCES["normal"], 8, percentile) < 0.96
    assert covered(*DIFFERENCES["skewed"], 8, percentile) < 0.93


def test_what_happens_to_one_seed_in_five_may_be_missing_from_eight() -> None:
    """Said in the docs: 0.8⁸ = 17 % of samples have none, and where the rest differ a little no interval knows of it."""
    rare: Draw = lambda rng, n: 0.8 * (rng.random(n) < 0.2) + rng.normal(0, 0.01, n)  # noqa: E731
    assert 0.78 < covered(rare, 0.16, 8, ours) < 0.88


@pytest.mark.parametrize("count", [8, 12, 16])
@pytest.mark.parametrize(("plus", "minus"), [(0.0, 0.0), (0.05, 0.0), (0.0, 0.75), (0.3, 0.3), (0.05, 0.9), (0.0, 1.0)])
def test_the_exact_interval_of_paired_shares_covers_at_least_its_label(plus: float, minus: float, count: int) -> None:
    """Every outcome with its chance: no simulation."""
    chances: dict[int, float] = {}
    for up in range(count + 1):
        for down in range(count + 1 - up):
            chance = stats.multinomial.pmf([up, down, count - up - down], count, [plus, minus, 1 - plus - minus])
            chances[up - down] = chances.get(up - down, 0.0) + float(chance)
    total = 0.0
    for sums, chance in chances.items():
        if chance > 1e-6:  # the interval depends on the sum alone
            found = paired_share_interval(np.repeat([np.sign(sums), 0.0], [abs(sums), count - abs(sums)]), LEVEL)
            total += chance * (found.lower - 1e-9 <= plus - minus <= found.upper + 1e-9)
    assert total >= LEVEL - 1e-5


def test_eight_pairs_that_all_differ_leave_a_bound_by_hand() -> None:
    # −1 with chance q and +1 otherwise: eight times −1 has chance q⁸ = 0.005, q = 0.5157, so δ = 1 − 2q = −0.0313.
    found = paired_share_interval(np.full(8, -1.0), 0.99)
    assert (found.estimate, found.lower) == (-1.0, -1.0)
    assert found.upper == pytest.approx(1 - 2 * 0.005**0.125, abs=1e-6)
    with pytest.raises(InputError, match="−1, 0 or 1"):
        paired_share_interval(np.array([0.5] * 8))


@settings(max_examples=40, deadline=None)
@given(NUMBERS)
def test_it_contains_students_interval_and_turning_the_signs_turns_it(values: list[float]) -> None:
    given = np.array(values)
    one, other = mean_interval(given, 0.99), mean_interval(-given, 0.99)
    assert (one.lower, one.upper) == pytest.approx((-other.upper, -other.lower), abs=1e-12)
    if given.std() > 1e-6:
        low, high = stats.t.interval(0.99, len(given) - 1, given.mean(), stats.sem(given))
        assert one.lower <= max(low, -1) + 1e-9
        assert one.upper >= min(high, 1) - 1e-9


def test_two_wild_seeds_of_eight_leave_the_side_of_the_wild_ones_open() -> None:
    found = mean_interval(SKEWED, 0.99)
    low, high = stats.t.interval(0.99, 7, SKEWED.mean(), stats.sem(SKEWED))
    assert found.lower == pytest.approx(low)
    assert found.upper > high + 0.1


def test_equal_values_say_how_many_others_could_be_missing_and_three_seeds_get_no_interval() -> None:
    # 0.5157 of the runs may be all that are like these: the rest could be anywhere within ±1.
    found = mean_interval(np.full(8, 0.1), 0.99)
    assert (found.estimate, found.lower) == pytest.approx((0.1, 0.005**0.125 * 0.1 - (1 - 0.005**0.125)))
    for bad in ([0.1] * 3, [], [0.1] * 7 + [float("nan")]):
        with pytest.raises(InputError, match="8 or more finite numbers"):
            mean_interval(np.array(bad))


@pytest.mark.parametrize("freedom", [1, 2, 3, 7, 8, 11, 31])
@pytest.mark.parametrize("share", [0.6, 0.975, 0.995, 0.9999])
def test_students_quantiles_are_scipys(share: float, freedom: int) -> None:
    assert student_quantile(share, freedom) == pytest.approx(float(stats.t.ppf(share, freedom)), rel=1e-7)


@pytest.mark.parametrize(("hits", "tries"), [(0, 8), (8, 8), (1, 8), (5, 12), (31, 32)])
@pytest.mark.parametrize("level", [0.9, 0.99])
def test_shares_have_scipys_exact_interval(hits: int, tries: int, level: float) -> None:
    theirs = stats.binomtest(hits, tries).proportion_ci(level, "exact")
    found = binomial_interval(hits, tries, level)
    assert (found.lower, found.upper) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


def test_eight_of_eight_may_still_be_63_percent() -> None:
    # Closed form: (α/2)^(1/n) = 0.025^(1/8).
    assert binomial_interval(8, 8).lower == pytest.approx(0.025**0.125)
    with pytest.raises(InputError, match="9 of 8"):
        binomial_interval(9, 8)
