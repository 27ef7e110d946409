"""Verdicts: what decides, what does not, and how often they are wrong."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trimtab.errors import InputError
from trimtab.lab.statistics.decision import (
    EXACT,
    LEVEL,
    LOOKS,
    Direction,
    claim_decision,
    false_discovery_rates,
    next_look,
    seeds_needed,
    sign_flip_p,
)

CLEAR = np.array([0.8, 0.7, 0.75, 0.6, 0.9, 0.5, 0.72, 0.66])
NOISE = np.array([0.3, -0.28, 0.1, -0.15, 0.22, -0.3, 0.05, -0.02])
SMALL = np.array([0.004, -0.006, 0.002, 0.001, -0.003, 0.005, -0.001, 0.002])


@pytest.mark.parametrize(
    ("values", "expected", "outcome"),
    [
        (CLEAR, "higher", "confirmed"),
        (CLEAR, "lower", "contradicted"),
        (CLEAR, "same", "contradicted"),
        (CLEAR / 10, "same", "not decided"),
        (-CLEAR, "lower", "confirmed"),
        (NOISE, "higher", "not decided"),
        (NOISE, "same", "not decided"),
        (SMALL, "higher", "no gain"),
        (SMALL, "lower", "no loss"),
        (SMALL, "same", "confirmed"),
        (np.zeros(8), "higher", "not decided"),
        (CLEAR[:7], "higher", "not decided"),
    ],
)
def test_what_eight_pairs_decide(values: np.ndarray, expected: Direction, outcome: str):
    assert claim_decision(values, expected, 0.05).outcome == outcome


MIRRORED = {
    "confirmed": "confirmed",
    "contradicted": "contradicted",
    "no gain": "no loss",
    "not decided": "not decided",
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 1).map(lambda value: round(value, 2)), min_size=0, max_size=20))
def test_turning_every_sign_turns_higher_into_lower(values: list[float]):
    given = np.array(values)
    one, other = claim_decision(given, "higher", 0.05), claim_decision(-given, "lower", 0.05)
    assert (one.needed, one.p) == (other.needed, other.p)
    assert MIRRORED[one.outcome] == other.outcome
    assert claim_decision(given, "same", 0.05).outcome == claim_decision(-given, "same", 0.05).outcome


def test_between_two_looks_nothing_new_is_decided():
    more = np.concatenate([NOISE, np.full(3, 0.9)])
    assert (next_look(0), next_look(8), next_look(32)) == (8, 12, None)
    assert claim_decision(more, "higher", 0.05) == claim_decision(NOISE, "higher", 0.05)


def test_a_verdict_needs_both_the_interval_and_the_exact_test():
    # Eight that fell 0.1 to 0.2 by the median and one wild seed: the exact test is sure, Student's t is not.
    wild = np.array([0.02, 0.01, 0.09, 0.84, 0.83, 0.04, 0.03, 0.05])
    assert sign_flip_p(wild) == 1 / 256
    assert claim_decision(wild, "higher", 0.05).outcome == "not decided"
    # Eight pairs of which one is a little under 0: the interval lies above 0, the exact test knows 2 of 256 choices.
    near = np.array([0.30, 0.31, 0.29, 0.30, 0.32, 0.31, 0.30, -0.01])
    found = claim_decision(near * 0 + [0.3, 0.31, 0.29, 0.3, 0.32, 0.31, 0.3, 0.28], "higher", 0.05)
    assert (found.outcome, found.p) == ("confirmed", pytest.approx(2 * 5 / 256))
    assert claim_decision(near, "higher", 0.05).outcome == "not decided"


def test_the_exact_interval_decides_survival():
    fell = np.full(8, -1.0)
    assert claim_decision(fell, "lower", 0.2, shares=True).outcome == "confirmed"
    assert claim_decision(np.array([-1.0] * 6 + [0.0] * 2), "lower", 0.2, shares=True).outcome == "not decided"


def test_false_discovery_rates_are_scipys_and_by_hand():
    # Sorted: 0.01 · 4, 0.03 · 2, 0.04 · 4/3, 1; the second is not above the third.
    assert false_discovery_rates([0.01, 0.04, 0.03, 1.0]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 1.0])
    chances = np.random.default_rng(0).random(40) ** 3
    assert false_discovery_rates(chances.tolist()) == pytest.approx(stats.false_discovery_control(chances).tolist())


def test_too_few_seeds_say_so_and_a_margin_is_needed():
    assert "0 of at least 8" in claim_decision(np.array([]), "higher", 0.05).reason
    assert "3 of at least 8" in claim_decision(CLEAR[:3], "higher", 0.05).reason
    with pytest.raises(InputError, match="margin above 0"):
        claim_decision(CLEAR, "higher", 0.0)


@pytest.mark.parametrize("effect", [0.3, 0.5, 1.0, 1.7])
def test_so_many_seeds_have_the_power_that_the_noncentral_t_says(effect: float):
    count = seeds_needed(effect, 1.0, 0.95)
    assert count is not None

    def power(n: int) -> float:
        edge = stats.t.ppf(0.975, n - 1)
        return float(stats.nct.sf(edge, n - 1, effect * np.sqrt(n)) + stats.nct.cdf(-edge, n - 1, effect * np.sqrt(n)))

    assert power(count) >= 0.795
    assert power(count - 2) < 0.8


def test_the_seeds_needed_by_hand_and_where_none_would_do():
    # (1.96 + 0.842)² + 1.96²/2 = 9.77.
    assert seeds_needed(1.0, 1.0, 0.95) == 10
    assert seeds_needed(0.0, 1.0, 0.95) is None
    assert seeds_needed(1e-6, 1.0, 0.95) is None
    open_one = claim_decision(NOISE, "higher", 0.05)
    assert open_one.needed is not None
    assert open_one.needed > 32
    assert claim_decision(CLEAR, "higher", 0.05).needed is None


def wrong_verdicts(expected: Direction, drawn: np.ndarray) -> int:
    """How many rows, looked at five times, are called confirmed although their mean is 0."""
    return sum(
        any(claim_decision(row[:look], expected, 0.05).outcome == "confirmed" for look in LOOKS) for row in drawn
    )


def test_five_looks_at_runs_that_fall_or_stand_by_chance_are_seldom_wrong():
    """Differences of two arms that each collapse with chance a half: 0.8 up, 0.8 down, or about 0."""
    rng = np.random.default_rng(5)
    rows = 0.8 * (rng.integers(0, 2, (120, 32)) - rng.integers(0, 2, (120, 32))) + rng.normal(0, 0.02, (120, 32))
    assert wrong_verdicts("higher", rows) <= 6  # one-sided 2.5 %: 3 of 120 expected at most
    naive = sum(
        any(stats.ttest_1samp(row[:look], 0, alternative="greater").pvalue < 0.05 for look in LOOKS) for row in rows
    )
    assert naive > 6  # what the same looks find where nobody pays for them
    assert pytest.approx(0.99) == LEVEL


def test_before_the_first_look_there_is_a_mean_and_no_interval():
    found = claim_decision(np.array([-0.84, -0.82]), "lower", 0.05)
    assert found.difference.estimate == pytest.approx(-0.83)
    assert (found.difference.lower, found.difference.upper, found.needed) == (-np.inf, np.inf, None)
    assert np.isfinite(claim_decision(np.full(8, -0.83) + np.arange(8) / 100, "lower", 0.05).difference.lower)


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
