"""A correction in words: nothing is left out, and each choice reads differently."""

import warnings
from itertools import combinations

import pytest
from hypothesis import given

from tests.laws.batches import corrections
from trimtab import Correction, Gate, Weight, preset
from trimtab.config.presets import preset_names
from trimtab.errors import ConfigWarning
from trimtab.explain.gate_words import as_written, inequality
from trimtab.explain.words import formulas, passages, weight_formula


def text(rule: Correction) -> str:
    return "\n".join(f"{label} {line}" for part in passages(rule) for label, line in [("", part.title), *part.lines])


def test_the_two_stage_rule_in_words():
    found = {part.title: dict(part.lines) for part in passages(preset("geo-rs+token-mis", token_upper=2.0))}
    assert list(found) == [
        "Log-ratio",
        "Gate 1 · ratio of each sequence",
        "Gate 2 · ratio of each token",
        "Weight",
        "Loss",
    ]
    assert found["Log-ratio"]["formula"] == "ℓ = log proximal − log behavior of each trained token; r = e^ℓ"
    assert found["Log-ratio"]["needs"] == "log-probs of behavior and proximal"
    first = found["Gate 1 · ratio of each sequence"]
    assert first["tests"] == "the geometric mean of the ratios, over the tokens of each sequence"
    assert first["passes if"] == "0.99 ≤ e^(mean ℓ) ≤ 1.01"
    assert first["outside"].startswith("rejected: the sequence leaves the mask")
    assert found["Gate 2 · ratio of each token"]["over"] == "the tokens that earlier gates kept"
    assert found["Weight"]["formula"] == "w = r where kept, 0 where rejected"
    assert found["Weight"]["beyond"] == "no bounds of its own; gate 2 keeps it at or below 2"
    assert found["Loss"]["divided by"].startswith("the count before rejection")


@pytest.mark.parametrize(
    ("rule", "weighs", "needs"),
    [
        (Correction(weight=Weight(level="one")), None, "log-probs of behavior and proximal"),
        (preset("geo-rs"), None, "log-probs of behavior and proximal"),
        (preset("token-tis"), "the policy-gradient term", "log-probs of behavior and proximal"),
        (
            preset("opsm"),  # it zeroes, which the KL term is spared
            "the policy-gradient term",
            "log-probs of behavior, proximal and current; advantages (per token or per sequence)",
        ),
    ],
)
def test_what_is_weighed_is_said_where_something_is_and_advantages_where_they_are_needed(
    rule: Correction, weighs: str | None, needs: str
):
    found = {part.title: dict(part.lines) for part in passages(rule)}
    assert found["Loss"].get("weighs") == weighs
    assert found["Log-ratio"]["needs"] == needs


def test_the_formulas_of_a_rule_stand_in_the_order_in_which_they_act():
    assert formulas(preset("opsm")) == [
        "ℓ = log proximal − log behavior,  r = e^ℓ",
        "gate 1: sequence weighs 0 unless mean(−ℓ) ≤ 0.0001  [ℓ of current/behavior]  "
        "[only on sequences whose mean advantage is negative]",
        "weight: 1",
    ]
    assert formulas(preset("m2po"))[1] == (
        "gate 1: drop the tokens with the largest ℓ² until mean(ℓ²) of the rest ≤ 0.04"
    )
    assert formulas(preset("kpop"))[1] == (
        "gate 1: keep token if max(b(q, p), b(p, q)) ≤ 2,  b(x, y) = x·log(x/y) + (1−x)·log((1−x)/(1−y))"
    )


@pytest.mark.parametrize(
    ("weight", "formula"),
    [
        (None, "1"),
        (Weight(level="one"), "1"),
        (Weight(level="token"), "r"),
        (Weight(level="token", upper=2.0), "min(r, 2)"),
        (Weight(level="token", lower=0.5), "max(r, 0.5)"),
        (Weight(level="token", lower=0.5, upper=5.0), "clip(r, 0.5, 5)"),
        (Weight(level="token", lower=0.5, upper=5.0, outside="zero"), "r if 0.5 ≤ r ≤ 5, else 0"),
        (Weight(level="sequence", upper=2.0), "min(e^(Σ ℓ over the sequence), 2)"),
        (Weight(level="geometric"), "e^(mean ℓ over the sequence)"),
        (Weight(level="segment"), "e^(mean ℓ over the turn)"),
        (Weight(level="segment_product"), "e^(Σ ℓ over the turn)"),
        (Weight(level="token", upper=2.0, bound_scale="entropy"), "min(r, 2^H)"),
        (Weight(level="token", lower=0.5, bound_scale="one_minus_p"), "max(r, 0.5^(1−q))"),
        (Weight(level="token", bounds={"ess": 0.9}), "min(r, u)"),
        (Weight(level="token", bounds={"ess": 0.9}, lower=0.5), "clip(r, 0.5, u)"),
        (Weight(level="token", bounds={"keep": 0.9}, outside="zero"), "r if 1/d ≤ r ≤ d, else 0"),
    ],
)
def test_a_weight_as_a_formula(weight, formula):
    assert weight_formula(weight) == formula


@pytest.mark.parametrize(
    ("settings", "test"),
    [
        ({"metric": "ratio", "lower": 0.5, "upper": 2.0, "bound_scale": "entropy"}, "0.5^H ≤ r ≤ 2^H"),
        ({"metric": "abs_log_ratio", "upper": 0.1, "bound_scale": "one_minus_p"}, "|ℓ| ≤ 0.1·(1−q)"),
        ({"metric": "k2", "level": "sequence", "upper": 0.1, "bound_scale": "inv_sqrt_length"}, "mean(ℓ²/2) ≤ 0.1/√T"),
        ({"metric": "ratio", "bounds": {"keep": 0.99}}, "1/d ≤ r ≤ d"),
        ({"metric": "k1", "bounds": {"keep": 0.99}}, "−d ≤ −ℓ ≤ d"),
        ({"metric": "tv", "bounds": {"keep": 0.99}}, "|p − q| ≤ d"),
    ],
)
def test_bounds_that_vary_as_formulas(settings, test):
    rule = Correction.from_settings({"gates": [settings]})
    lines = dict(passages(rule)[1].lines)
    assert lines["passes if"] == test
    assert "99 % of the tokens" in lines["bounds"] if "bounds" in settings else lines["scaled"]


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [(None, 2.0, "x ≤ 2"), (0.5, None, "x ≥ 0.5"), (-0.2, 1e-5, "−0.2 ≤ x ≤ 1e-05"), (None, None, "x, no bounds")],
)
def test_bounds_as_an_inequality(lower, upper, expected):
    assert inequality("x", lower, upper) == expected


@pytest.mark.parametrize("value", [1.0001, 0.99999999, 2.0, 100.0, 1e-4])
def test_a_number_is_shown_without_losing_digits(value):
    assert float(as_written(value)) == value


VARIANTS = {
    "action": ["reject", "zero", "clamp", "observe"],
    "when": ["always", "negative_advantage", "nonpositive_advantage", "positive_advantage", "moving_away"],
    "scope": ["trained", "kept"],
    "agg": ["mean", "sum", "max", "min"],
    "level": ["segment", "sequence"],
    "pair": [None, "current/behavior", "current/proximal"],
    "limit": [None, {"bound": 20.0}, {"bound": 20.0, "at": "gathered"}],
    "upper": [1.2, 1.3],
}


@pytest.mark.parametrize(
    ("settings", "when"),
    [
        ({}, "only on tokens with negative advantage"),
        ({"level": "sequence"}, "only on sequences whose mean advantage is negative"),
        ({"level": "segment"}, "only on turns whose mean advantage is negative"),
        ({"level": "sequence", "advantage_of": "token"}, "only on tokens with negative advantage"),
        ({"when": "moving_away"}, "only on tokens that the update pushes further away: advantage × ℓ > 0"),
        ({"when": "always"}, "always"),
    ],
)
def test_when_a_gate_acts_is_said_of_what_it_looks_at(settings, when):
    gate = Gate(**({"metric": "ratio", "upper": 1.1, "when": "negative_advantage"} | settings))
    lines = next(dict(part.lines) for part in passages(Correction(gates=(gate,))) if part.title.startswith("Gate 1"))
    assert lines["acts"] == when


@pytest.mark.parametrize("field", VARIANTS)
def test_every_choice_of_a_gate_reads_differently(field):
    base = {"metric": "ratio", "level": "sequence", "agg": "mean", "upper": 1.1}
    rules = [
        Correction(gates=(Gate(**(base | {field: choice})),), weight=Weight(level="token"))
        for choice in VARIANTS[field]
    ]
    for one, other in combinations(rules, 2):
        assert text(one) != text(other)


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("policies", ["decoupled", "bypass"]),
        ("normalize", [None, "batch"]),
        ("denominator", ["trained", "kept"]),
        ("applies_to", ["policy", "policy+kl"]),
    ],
)
def test_every_choice_of_a_correction_reads_differently(field, choices):
    one, other = (preset("token-tis").but(**{field: choice}) for choice in choices)
    assert text(one) != text(other)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_has_words_for_everything(name):
    for part in passages(preset(name)):
        for label, line in part.lines:
            assert line, (name, part.title, label)
            assert "None" not in line
            assert "{" not in line


@given(corrections())
def test_any_correction_has_words(rule):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        assert len(formulas(rule)) == len(rule.gates) + 2
        assert "None" not in text(rule)
