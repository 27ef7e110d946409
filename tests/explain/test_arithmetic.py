"""Plain arithmetic and the engine decide alike; two implementations that share no code."""

import math
from itertools import product
from typing import get_args

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.laws.batches import corrections
from trimtab import Correction, Gate, Weight, correct, preset
from trimtab.config.divergences import DIVERGENCES, plain_value
from trimtab.config.gate import Metric
from trimtab.config.presets import PRESETS
from trimtab.explain.arithmetic import LENGTH, Token, outcome
from trimtab.explain.examples import CASES, examples, setting

probabilities = st.floats(1e-4, 0.9999)
tokens = st.lists(st.builds(Token, probabilities, probabilities), min_size=1, max_size=6)


def engine(rule: Correction, sequence: list[Token], advantage: float):
    target = torch.tensor([[token.target for token in sequence]], dtype=torch.float64).log()
    behavior = torch.tensor([[token.behavior for token in sequence]], dtype=torch.float64).log()
    return correct(
        rule,
        behavior=behavior,
        proximal=target,
        current=target,
        mask=torch.ones_like(target, dtype=torch.bool),
        advantages=torch.tensor([advantage], dtype=torch.float64),
        entropy=-behavior,
    )


@given(corrections(), tokens, st.sampled_from([-1.0, 0.0, 1.0]))
def test_the_worked_outcome_is_what_the_engine_computes(rule, sequence, advantage):
    assume(rule.normalize is None and "current/proximal" not in rule.pairs)
    found, expected = outcome(rule, sequence, advantage), engine(rule, sequence, advantage)
    assert list(found.kept) == expected.kept[0].tolist()
    assert list(found.weight) == pytest.approx(expected.weight[0].tolist(), rel=1e-9)


VARYING = [
    {"gates": [{"metric": "ratio", "lower": 0.5, "upper": 2.0, "bound_scale": "entropy"}]},
    {"gates": [{"metric": "k3", "upper": 0.1, "bound_scale": "entropy", "action": "zero"}]},
    {"gates": [{"metric": "mult_prob_error", "upper": 1.5, "bound_scale": "one_minus_p"}]},
    {"gates": [{"metric": "ratio", "level": "sequence", "upper": 1.2, "bound_scale": "inv_sqrt_length"}]},
    {
        "gates": [{"metric": "ratio", "upper": 1.5, "bound_scale": "entropy", "action": "clamp"}],
        "weight": {"level": "token"},
    },
    {"gates": [{"metric": "prob_diff", "bounds": {"keep": 0.5}}], "weight": {"level": "token", "bounds": {"ess": 0.7}}},
    {"weight": {"level": "token", "upper": 2.0, "lower": 0.5, "bound_scale": "entropy"}},
    {"weight": {"level": "token", "lower": 0.25, "bounds": {"ess": 0.8}}},
    {"weight": {"level": "prefix", "bounds": {"keep": 0.6}, "outside": "zero"}},
    {"weight": {"level": "segment_product", "upper": 1.5}},
]


@pytest.mark.parametrize("settings", VARYING)
@given(sequence=tokens)
def test_bounds_that_vary_come_out_as_the_engine_has_them(settings, sequence):
    rule = Correction.from_settings(settings)
    found, expected = outcome(rule, sequence), engine(rule, sequence, 1.0)
    assert list(found.kept) == expected.kept[0].tolist()
    assert list(found.weight) == pytest.approx(expected.weight[0].tolist(), rel=1e-7)


@pytest.mark.parametrize("name", PRESETS)
def test_the_cases_of_the_examples_come_out_of_every_preset_as_the_engine_has_them(name):
    for case, advantage in product(CASES, (-1.0, 1.0) if preset(name).needs_advantages else (1.0,)):
        sequence = case.tokens[:10]
        found, expected = outcome(preset(name), sequence, advantage), engine(preset(name), list(sequence), advantage)
        assert list(found.kept) == expected.kept[0].tolist()
        assert list(found.weight) == pytest.approx(expected.weight[0].tolist(), rel=1e-9)


KINDS = [(name, direction) for name, each in DIVERGENCES.items() for direction in each.forms]


def test_every_metric_of_a_gate_has_a_formula():
    assert set(get_args(Metric)) == set(DIVERGENCES)


@pytest.mark.parametrize(("metric", "direction"), KINDS)
def test_a_formula_is_neutral_on_policy_and_stays_in_its_range(metric, direction):
    facts = DIVERGENCES[metric]
    neutral = math.log(facts.neutral) if metric == "ratio" else facts.neutral
    assert plain_value(metric, direction, 0.0, 0.3, 0.3) == neutral
    if metric != "ratio":
        for token in (Token(0.3, 0.9), Token(0.9, 0.3), Token(1e-9, 1.0)):
            assert (
                facts.least <= plain_value(metric, direction, token.log_r, token.target, token.behavior) <= facts.most
            )


@pytest.mark.parametrize(("metric", "direction"), [each for each in KINDS if each[0] != "age"])
def test_a_formula_gives_the_same_in_plain_numbers_and_on_tensors(metric, direction):
    target, behavior = (
        torch.tensor(each, dtype=torch.float64) for each in ([0.9, 0.2, 0.5, 1.0], [0.3, 0.8, 0.5, 1e-9])
    )
    log_r = (target / behavior).log()
    _, formula = DIVERGENCES[metric].forms[direction]
    tokens = zip(log_r.tolist(), target.tolist(), behavior.tolist(), strict=True)
    plain = [plain_value(metric, direction, *token) for token in tokens]
    torch.testing.assert_close(
        formula(torch, log_r, target, behavior), torch.tensor(plain, dtype=torch.float64), rtol=1e-12, atol=1e-14
    )


def test_a_token_with_ratio_three_is_truncated_at_two():
    # 0.9 / 0.3 = 3, held at 2; the others 0.5 / 0.5 = 1
    found = outcome(preset("token-tis"), CASES[0].tokens)
    assert found.weight == (2.0, *([1.0] * (LENGTH - 1)))


def test_a_geometric_mean_far_from_one_takes_the_whole_sequence():
    # every ratio 0.51 / 0.5 = 1.02, so their geometric mean is 1.02 > 1.01
    found = outcome(preset("geo-rs"), CASES[4].tokens)
    assert not any(found.kept)
    assert found.findings[0].statistic[0] == pytest.approx(1.02)


def test_a_clamp_gate_holds_the_weight_of_its_sequence():
    # max r = 3 > 1.5: outside, so the geometric mean (3 · 1) ** (1/2) = 1.732 is held at 1.5
    gate = Gate(metric="ratio", level="sequence", agg="max", upper=1.5, action="clamp")
    rule = Correction(gates=(gate,), weight=Weight(level="geometric"))
    assert outcome(rule, [Token(0.3, 0.9), Token(0.5, 0.5)]).weight == (1.5, 1.5)


@pytest.mark.parametrize("at", ["token", "gathered"])
def test_a_limit_holds_log_ratios_where_it_says(at):
    # ratios 1000 and 1/4; ℓ = 6.908 and −1.386, limit 2. By token: 2 − 1.386 = 0.614, e^0.614 = 1.847.
    # Gathered: 6.908 − 1.386 = 5.522, held at 2, e^2 = 7.389.
    limit, sequence = {"bound": 2.0, "at": at}, [Token(0.0004, 0.4), Token(0.8, 0.2)]
    gate = Gate(metric="ratio", level="sequence", agg="sum", upper=1.5, action="observe", limit=limit)
    rule = Correction(gates=(gate,), weight=Weight(level="sequence", limit=limit))
    found, expected = outcome(rule, sequence), {"token": math.exp(2.0) / 4, "gathered": math.exp(2.0)}[at]
    assert found.weight == pytest.approx((expected, expected))
    assert found.findings[0].statistic == pytest.approx((expected, expected))
    assert engine(rule, sequence, 1.0).weight[0].tolist() == pytest.approx([expected, expected])


def test_equal_values_fall_together_under_a_budget():
    # two tokens with ℓ² = (log 2)² = 0.48 and one with 0: dropping one of the two would leave (0.48 + 0) / 2 = 0.24 ≤ 0.3
    rule = preset("m2po", tau=0.3)
    assert outcome(rule, [Token(0.2, 0.4), Token(0.2, 0.4), Token(0.5, 0.5)]).kept == (False, False, True)


def test_a_strict_budget_keeps_the_smallest_where_nothing_fits():
    rule = preset("m2po", tau=0.1)
    strict = rule.but(gates=(rule.gates[0].but(strict=True),))
    tokens = [Token(0.2, 0.4), Token(0.1, 0.4)]  # ℓ² = 0.48 and 1.92, both above 0.1
    assert outcome(rule, tokens).kept == (False, False)
    assert outcome(strict, tokens).kept == (True, False)


def test_examples_name_the_gate_and_the_number_that_decided():
    found = dict(examples(preset("geo-rs+token-mis", token_upper=2.0)))
    assert found["a token with ratio 3 (0.3 → 0.9)"] == "rejected by gate 2 (3 > 2)"
    assert found["a token with ratio 0.25 (0.8 → 0.2)"] == "weight 0.25"
    everywhere = f"all {LENGTH} tokens with ratio 1.02 (0.5 → 0.51)"
    assert found[everywhere] == "the whole sequence rejected by gate 1 (1.02 > 1.01)"


def test_examples_say_what_the_sign_of_the_advantage_changes():
    found = dict(examples(preset("dppo-tv")))
    fate = "weight 0 by gate 1 (0.6 > 0.2) if the advantage is positive, weight 3 if negative"
    assert found["a token with ratio 3 (0.3 → 0.9)"] == fate
    assert found["a token with ratio 3 (0.001 → 0.003)"] == "weight 3"


def test_examples_say_what_becomes_of_the_rest_of_the_sequence():
    found = dict(examples(preset("seq-tis")))
    assert found["a token with ratio 3 (0.3 → 0.9)"] == "weight 2; the others weigh 2"


def test_examples_name_the_bound_that_a_token_has():
    # q = 0.3: H = log 1/0.3 = 1.204, 2^1.204 = 2.304 < 3; q = 0.001: H = 6.908, 2^6.908 = 120
    rule = Correction.from_settings({"gates": [{"metric": "ratio", "upper": 2.0, "bound_scale": "entropy"}]})
    found = dict(examples(rule))
    assert found["a token with ratio 3 (0.3 → 0.9)"] == "rejected by gate 1 (3 > 2.304)"
    assert found["a token with ratio 3 (0.001 → 0.003)"] == "weight 1"
    assert setting(rule).endswith("The entropy of a token is taken as log 1/q.")


def test_a_veto_names_the_bound_that_was_left_not_the_farthest_token():
    rule = preset("veto", lower=0.9, upper=100.0)
    sequence = [Token(0.4, 0.2), Token(0.01, 0.5)]  # ratios 0.5 (outside) and 50 (inside)
    assert outcome(rule, sequence).findings[0].statistic[0] == pytest.approx(0.5)
