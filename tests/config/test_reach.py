"""How far a token must move before a gate fires, and what is said where that hardly ever happens."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab import Gate, preset
from trimtab.config.algebra import Metric
from trimtab.config.presets import PRESETS
from trimtab.config.reach import factor, rarely
from trimtab.dialects import read
from trimtab.errors import ConfigWarning
from trimtab.lab.candidate import parse_candidate

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
    "seq-max-k3": "one token must change in probability as much as from 0.2 to 0.9, a factor of 5.7. With upper 0.31",
    "seq-logprob-error": "a factor of 2. With upper 1.2 a factor of 1.2 would do.",
}


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_whose_bounds_hardly_ever_fire_says_so_and_no_other(name: str) -> None:
    said = [sentence for gate in preset(name).gates if (sentence := rarely(gate))]
    assert len(said) == (name in RARELY)
    assert all(RARELY[name] in sentence for sentence in said)


def test_the_bound_that_is_offered_fires_where_it_is_said_to() -> None:
    for name, (parameter, offered) in {"kpop": ("phi", 0.63), "k2-rs": ("upper", 0.017)}.items():
        gate = preset(name, **{parameter: offered}).gates[0]
        assert rarely(gate) is None
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
