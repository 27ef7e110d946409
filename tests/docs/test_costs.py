"""What the pages say of bias and variance, against what can be worked out on paper."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from statistics import NormalDist

import pytest

from trimtab import Correction, Gate, Weight, preset
from trimtab.config.presets import PRESETS

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

import costs

PHI = NormalDist().cdf
NEAR = 0.01


@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0])
def test_without_a_correction_the_distance_is_that_of_two_normals(spread: float):
    # E min(1, r) for log r ~ N(-σ²/2, σ²): P(r > 1) + E[r; r <= 1] = 2 Φ(-σ/2), so the distance is 2 Φ(σ/2) - 1.
    found = costs.cost("off", spread)
    for distance, steps in ((found.token, 1), (found.sequence, costs.LENGTH)):
        assert distance == pytest.approx(2 * PHI(spread * math.sqrt(steps) / 2) - 1, abs=NEAR)
    each = [2 * PHI(spread * math.sqrt(place) / 2) - 1 for place in range(1, costs.LENGTH + 1)]
    assert found.prefix == pytest.approx(sum(each) / len(each), abs=NEAR)
    assert (found.touched, found.mean, found.ess) == (0, 1, 1)


def test_the_full_ratio_of_a_token_has_no_bias_of_its_own_and_costs_samples():
    # E r² = e^(σ²), so the effective sample size is e^(-σ²): 0.368 at σ = 1.
    found = costs.cost_of(Correction(weight=Weight(level="token")), 1.0)
    assert found.token == 0
    assert found.mean == pytest.approx(1, abs=NEAR)
    assert found.ess == pytest.approx(math.exp(-1), abs=0.02)


def test_truncation_makes_the_step_smaller_by_what_it_cuts_off():
    # upper 2, σ = 1, ln 2 = 0.693: E min(r, 2) = Φ(0.693 - 0.5) + 2 Φ(-0.693 - 0.5) = 0.5766 + 2 · 0.1164 = 0.809.
    found = costs.cost("token-tis", 1.0)
    assert found.mean == pytest.approx(0.809, abs=NEAR)
    assert found.touched == pytest.approx(PHI(-math.log(2) - 0.5), abs=NEAR)
    assert 0 < found.token < costs.cost("off", 1.0).token
    assert found.ess > math.exp(-1)


def test_an_unbounded_product_is_exact_for_the_sequence_and_for_nothing_less():
    found = costs.cost_of(Correction(weight=Weight(level="sequence")), 0.02)
    assert found.sequence == pytest.approx(0, abs=1e-6)
    assert found.token > 0.05


def test_the_product_up_to_a_token_is_exact_for_the_prefix():
    found = costs.cost_of(Correction(weight=Weight(level="prefix")), 0.02)
    assert found.prefix == pytest.approx(0, abs=1e-6)
    assert min(found.token, found.sequence) > 0.02


def test_a_gate_that_cuts_at_one_leaves_a_shorter_step_and_the_lower_half():
    # keep r <= 1, σ = 1: Φ(σ/2) = 0.6915 of the tokens, of weight 1; as long a step, as large a sample.
    rule = Correction(gates=(Gate(metric="ratio", upper=1.0),))
    found = costs.cost_of(rule, 1.0)
    assert (found.mean, found.ess, found.touched) == pytest.approx((PHI(0.5), PHI(0.5), PHI(-0.5)), abs=NEAR)
    # what it trains on is q where r is small: 1 - E[r; r <= 1] = 1 - Φ(-1/2) = 0.6915, as r < 1 / 0.6915 there.
    assert found.token == pytest.approx(PHI(0.5), abs=NEAR)
    kept = costs.cost_of(rule.but(denominator="kept"), 1.0)
    assert kept.mean == pytest.approx(1, abs=1e-9)
    assert (kept.ess, kept.token) == pytest.approx((found.ess, found.token))


def test_a_rule_that_rejects_all_has_no_distribution():
    found = costs.cost_of(Correction(gates=(Gate(metric="k3", level="sequence", upper=0.0),)), 0.1)
    assert (found.mean, found.ess, found.touched) == (0, 0, 1)
    assert math.isnan(found.token)


def test_the_push_of_a_constant_advantage_is_there_without_centering_and_gone_with_it():
    plain, centered = (costs.push(preset(name), 0.3) for name in ("off", "score-centering"))
    assert plain.mean > 0.02
    assert centered.mean == pytest.approx(0, abs=1e-6)
    # what is taken off is the mean: E|g - m|² = E|g|² - |m|²
    assert centered.second_moment == pytest.approx(plain.second_moment - plain.mean**2, abs=1e-6)
    # the full ratio needs none: Σ q·(p/q)·(e - p) = p - p
    assert costs.push(Correction(weight=Weight(level="token")), 0.3).mean == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_cost_at_every_spread_that_is_told(name: str):
    for spread in costs.TOLD:
        found = costs.cost(name, spread)
        assert 0 <= found.touched <= 1
        assert 0 <= found.ess <= 1 + 1e-9
        assert all(0 <= each <= 1 or math.isnan(each) for each in (found.token, found.prefix, found.sequence))
