"""How far a token must move before a gate fires, and what is said where that hardly ever happens."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trimtab
from trimtab import Gate, preset
from trimtab.config.correction import Metric
from trimtab.config.presets import PRESETS
from trimtab.dialects import read
from trimtab.dialects.candidate import parse_candidate
from trimtab.errors import ConfigWarning
from trimtab.explain.sensitivity import factor, factor_of_one, rarely_fires

ROOT = Path(__file__).parents[2]
SOURCES = {
    "kpop": {"phi": 2.0},  # verl #6800, AReaL gsm8k_kpop.yaml
    "k2-rs": {"upper": 1.0},  # AReaL's documentation
    "seq-max-k3": {"upper": 3.0},  # the example of verl #6800
    "opsm": {"delta": 1e-4},  # slime --opsm-delta
    "m2po": {"tau": 0.04},  # AReaL gsm8k_m2po.yaml
    "dppo-tv": {"low": 0.2, "high": 0.2},  # prime-rl
    "dppo-kl": {"delta": 0.05},  # the authors' verl script
    "seq-logprob-error": {"upper": 2.0},  # NeMo-RL's recipes
}


@pytest.mark.parametrize(("name", "numbers"), SOURCES.items())
def test_the_numbers_of_a_preset_are_those_of_the_source_it_names(name: str, numbers: dict[str, float]) -> None:
    assert PRESETS[name].parameters == numbers
    assert PRESETS[name].numbers


def test_the_factor_at_which_a_gate_fires_is_worked_by_hand() -> None:
    # mean k2 = ℓ²/2 > 1 from |ℓ| = √2 on
    assert factor(preset("k2-rs", upper=1.0).gates[0]) == pytest.approx(math.exp(math.sqrt(2)))
    # k3 = r − 1 − log r > 3 from r = 5.749… on: 5.749 − 1 − 1.749 = 3
    assert factor(preset("seq-max-k3", upper=3.0).gates[0]) == pytest.approx(5.749, abs=1e-3)
    # from q = 0.9 to p: 0.9·log(0.9/p) + 0.1·log(0.1/(1 − p)) = 2 at p = 0.0762: 2.2222 − 0.2223
    assert 0.9 / factor(preset("kpop", phi=2.0).gates[0]) == pytest.approx(0.0762, abs=1e-4)
    # |p − q| > 0.2 from 0.9 to 0.7
    assert factor(Gate(metric="tv", upper=0.2)) == pytest.approx(0.9 / 0.7)
    assert factor(preset("token-mis", lower=0.25, upper=8.0).gates[0]) == pytest.approx(4.0)
    assert factor(Gate(metric="tv", upper=0.95)) == math.inf


@given(st.floats(0.01, 30.0), st.sampled_from(["k2", "k3", "second_moment", "abs_log_ratio"]))
def test_a_wider_bound_is_reached_no_earlier(bound: float, metric: Metric) -> None:
    assert factor(Gate(metric=metric, upper=bound * 1.1)) >= factor(Gate(metric=metric, upper=bound))


RARELY = {
    "kpop": "a token must change in probability as much as from 0.9 to 0.08, a factor of 12. With upper 0.63 a factor of 2",
    "k2-rs": "the tokens of a sequence, on average, must change in probability as much as from 0.9 to 0.2, a factor of 4.1",
}
OUTLIERS = {"seq-logprob-error": "one token of 1,000 that changes in probability by a factor of 1,000 exceeds them"}
ALONE = [
    # of 1,000 tokens one moves by ℓ and the others stay: the metric, its bound, and the factor e^|ℓ| at which its mean passes the bound
    ("mult_prob_error", None, 2.0, 1001.0),  # (e^|ℓ| + 999)/1000 = 2
    ("k2", None, 0.05, math.exp(10)),  # ℓ²/2 = 50
    ("second_moment", None, 0.1, math.exp(10)),  # ℓ² = 100
    ("abs_log_ratio", None, 0.01, math.exp(10)),  # |ℓ| = 10
    ("k1", "forward", 0.01, math.exp(10)),  # −ℓ = 10
    ("k1", "reverse", 0.01, math.exp(10)),
    ("k3", "forward", 1.0, 1007.916),  # r − 1 − log r = 1007.916 − 1 − 6.916 = 1000
    ("k3", "reverse", 1.0, 1007.916),
    ("k3", "max", 1.0, 1007.916),
    ("ratio_deviation", None, 1.0, 1001.0),  # |r − 1| = 1000
    ("binary_kl", "forward", 0.01, 86420.0),  # from 0.9: 0.9·log f + 0.1·log 0.1 = 10 and a little, log f = 11.367
    ("binary_kl", "reverse", 0.01, 86420.0),  # to 0.9
    ("binary_kl", "max", 0.01, 86420.0),
    ("tv", None, 0.05, math.inf),  # no more than 0.9/1000
    ("prob_diff", None, 0.05, math.inf),
    ("head_tv", None, 0.05, math.inf),
    ("ratio", None, 1.05, math.inf),  # the geometric mean: 1000·log 1.05 = 48.8
]


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_whose_bounds_hardly_ever_fire_says_so_and_no_other(name: str) -> None:
    said = [sentence for gate in preset(name).gates if (sentence := rarely_fires(gate))]
    rare = [sentence for sentence in said if "hardly ever fire" in sentence]
    assert len(rare) == (name in RARELY)
    assert all(RARELY[name] in sentence for sentence in rare)
    assert len(said) - len(rare) == (name in OUTLIERS)
    assert all(OUTLIERS[name] in sentence for sentence in said if sentence not in rare)


@pytest.mark.parametrize("level", ["sequence", "segment"])
@pytest.mark.parametrize(("metric", "direction", "upper", "expected"), ALONE)
def test_the_factor_by_which_one_token_alone_moves_a_mean_is_worked_by_hand(
    metric: Metric, direction: Any, upper: float, expected: float, level: Any
) -> None:
    gate = Gate(metric=metric, direction=direction, level=level, upper=upper)
    assert factor_of_one(gate) == pytest.approx(expected, rel=2e-3)


def test_one_token_among_a_batch_and_an_extreme_of_a_sequence_are_worked_by_hand() -> None:
    budget = Gate(metric="k3", level="batch", upper=0.01)
    assert factor_of_one(budget) == pytest.approx(1007.9, rel=1e-3)  # of 100,000 tokens: r − 1 − log r = 1000
    assert factor_of_one(Gate(metric="second_moment", level="batch", upper=0.04)) == math.inf  # ℓ² = 4000
    highest = Gate(metric="k3", level="sequence", agg="max", upper=3.0)
    assert factor_of_one(highest) == pytest.approx(5.749, abs=1e-3)
    assert rarely_fires(highest) is None  # one of a thousand tokens by a factor of 6 is nothing rare
    never = rarely_fires(Gate(metric="tv", level="sequence", agg="max", upper=0.95))
    assert never is not None
    assert "one token must change in probability" in never


@pytest.mark.parametrize(("moved", "stays"), [(6.8, True), (7.0, False)])
def test_one_outlier_of_a_thousand_tokens_rejects_where_it_is_said_to(moved: float, stays: bool) -> None:
    # e^6.8 = 898 and e^7 = 1097 against 1001
    log_r = torch.zeros(1, 1000)
    log_r[0, 500] = -moved
    out = trimtab.correct("seq-logprob-error", proximal=log_r - 1, behavior=log_r * 0 - 1, mask=log_r == log_r)
    assert bool(out.kept.all()) == stays
    assert bool(out.kept.any()) == stays


@given(st.floats(0.02, 30.0), st.sampled_from(["k2", "k3", "second_moment", "mult_prob_error", "ratio_deviation"]))
def test_a_mean_that_one_token_in_reach_can_move_is_not_called_rare(bound: float, metric: Metric) -> None:
    gate = Gate(metric=metric, level="sequence", upper=bound + (metric == "mult_prob_error"))
    said = rarely_fires(gate) or ""
    assert ("hardly ever fire" in said) <= (factor_of_one(gate) > 1e6)
    assert ("single outliers" in said) <= (factor_of_one(gate) <= 1e6)


def test_a_threshold_that_masks_most_sequences_of_a_run_is_not_called_rare() -> None:
    # NeMo-RL #4243: 60-71 % of the sequences masked with threshold 2
    findings = read("nemo-rl", {"grpo": {"seq_logprob_error_threshold": 2}}).findings
    assert not any("hardly ever fire" in each.text for each in findings)
    assert [each.level for each in findings if "single outliers" in each.text] == ["note"]


def test_the_bound_that_is_offered_fires_where_it_is_said_to() -> None:
    for name, (parameter, offered) in {"kpop": ("phi", 0.63), "k2-rs": ("upper", 0.017)}.items():
        gate = preset(name, **{parameter: offered}).gates[0]
        assert rarely_fires(gate) is None
        assert factor(gate) == pytest.approx(2.0 if gate.level == "token" else 1.2, rel=0.01)


def test_a_framework_s_bound_that_hardly_ever_fires_is_a_note_and_one_that_does_is_none() -> None:
    section = {"level": "sequence", "agg": "mean", "metric": "kl_k2"}
    for upper, expected in ((1.0, 1), (0.02, 0)):
        findings = read("areal", {"rejection_sampling": {**section, "upper": upper}}).findings
        found = [each for each in findings if "hardly ever fire" in each.text]
        assert len(found) == expected
        assert all(each.level == "note" for each in found)


def test_every_correction_of_the_lab_still_means_what_was_measured_under_its_name() -> None:
    measured = json.loads((ROOT / "docs" / "lab.json").read_text())["corrections"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)  # bounds that hardly act are among what is shown
        assert {label: parse_candidate(label).correction.settings() for label in measured} == measured
