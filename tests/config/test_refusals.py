"""What cannot mean anything does not construct, and the message says what to do about it."""

import math
import re
import warnings

import pytest

from trimtab import Correction, Gate, Limit, TrimtabError, Weight, preset
from trimtab.config import losses
from trimtab.errors import ConfigError, UnknownNameError

HOUSE_FORM = re.compile(r"needs .+, got .+\.( .+[.?])?$")

IMPOSSIBLE_GATES = {
    "Gate needs lower <= upper, got [2.0, 1.0]": {"metric": "k1", "lower": 2.0, "upper": 1.0},
    "Gate on ratio needs lower > 0, got 0.0": {"metric": "ratio", "lower": 0.0},
    "Gate on ratio needs upper > 0, got -1.0": {"metric": "ratio", "upper": -1.0},
    "Gate on ratio needs bounds that contain 1, got [open, 0.5]": {"metric": "ratio", "upper": 0.5},
    "Gate on ratio needs bounds that contain 1, got [1.5, 2]": {"metric": "ratio", "lower": 1.5, "upper": 2.0},
    "Gate needs a lower or an upper bound, got neither": {"metric": "k3"},
    "Gate at token level needs no agg, got 'mean'": {"metric": "ratio", "agg": "mean", "upper": 2.0},
    "Gate at batch level needs agg budget, got 'mean'": {"metric": "k2", "level": "batch", "agg": "mean", "upper": 1.0},
    "Gate with strict needs agg budget, got None": {"metric": "k2", "upper": 1.0, "strict": True},
    "Gate with agg budget needs level batch, got 'sequence'": {
        "metric": "k2",
        "level": "sequence",
        "agg": "budget",
        "upper": 1.0,
    },
    "Gate with agg budget needs an upper bound only": {"metric": "k2", "level": "batch", "lower": 0.1, "upper": 1.0},
    "Gate on k2 needs no direction, got 'forward'": {"metric": "k2", "direction": "forward", "upper": 1.0},
    "Gate on k1 needs direction forward or reverse, got 'max'": {"metric": "k1", "direction": "max", "upper": 1.0},
    "Gate with action clamp needs metric ratio, got 'k3'": {"metric": "k3", "action": "clamp", "upper": 1.0},
    "Gate with action clamp needs agg mean, sum, max or min, got 'every'": {
        "metric": "ratio",
        "level": "sequence",
        "agg": "every",
        "action": "clamp",
        "upper": 2.0,
    },
    "Gate at token level needs limit.at token, got 'gathered'": {
        "metric": "ratio",
        "upper": 2.0,
        "limit": {"bound": 20.0, "at": "gathered"},
    },
    "Gate needs upper to be a finite number (leave the field out to have no bound), got nan": {
        "metric": "ratio",
        "upper": math.nan,
    },
    "Gate needs lower to be a finite number (leave the field out to have no bound), got -inf": {
        "metric": "k1",
        "lower": -math.inf,
    },
    "Gate needs upper to be a number, got True": {"metric": "ratio", "upper": True},
    "Gate needs upper to be a number, got '2.0'. Drop the quotes.": {"metric": "ratio", "upper": "2.0"},
    "Gate needs upper to be a number, got [2.0]": {"metric": "ratio", "upper": [2.0]},
    "limit: Limit needs bound to be greater than 0, got -1": {"metric": "ratio", "upper": 2.0, "limit": {"bound": -1}},
}

IMPOSSIBLE_WEIGHTS = {
    "Weight needs lower <= upper, got [3.0, 2.0]": {"level": "token", "lower": 3.0, "upper": 2.0},
    "Weight needs bounds that contain 1, got [open, 0.5]": {"level": "token", "upper": 0.5},
    "Weight needs bounds that contain 1, got [2, open]": {"level": "token", "lower": 2.0},
    "Weight needs lower to be at least 0, got -1": {"level": "token", "lower": -1.0},
    "Weight needs upper to be greater than 0, got 0": {"level": "token", "upper": 0.0},
    "Weight at level one needs no bounds, got [open, 2]": {"level": "one", "upper": 2.0},
    "Weight with outside zero needs a lower or an upper bound, got neither": {"level": "token", "outside": "zero"},
    "Weight at token level needs limit.at token, got 'gathered'": {
        "level": "token",
        "limit": {"bound": 20.0, "at": "gathered"},
    },
    "Weight needs upper to be a number, got False": {"level": "token", "upper": False},
    "Weight needs upper to be a finite number (leave the field out to have no bound), got inf": {
        "level": "token",
        "upper": math.inf,
    },
    "Weight needs level, got nothing": {"upper": 2.0},
}

IMPOSSIBLE_CORRECTIONS = {
    "Correction with normalize needs a weight, got none": {
        "normalize": "batch",
        "gates": [{"metric": "ratio", "upper": 2.0}],
    },
    "Gate with action clamp needs a weight to hold, got none": {
        "gates": [{"metric": "ratio", "upper": 2.0, "action": "clamp"}]
    },
    "Correction needs gates to be a list, got {'metric': 'ratio'}. Begin each item with `- `.": {
        "gates": {"metric": "ratio"}
    },
    "Correction needs gates to be a list, got 2": {"gates": 2},
    "Correction needs gates.0 to be a mapping of `field: value` lines, got 2": {"gates": [2]},
    "Correction needs weight to be a mapping of `field: value` lines, got 'token'": {"weight": "token"},
    "gates.1: Gate needs lower <= upper, got [2.0, 1.0]": {
        "gates": [{"metric": "ratio", "upper": 2.0}, {"metric": "k1", "lower": 2.0, "upper": 1.0}]
    },
    "weight.limit: Limit needs bound, got nothing": {"weight": {"level": "token", "limit": {}}},
}


@pytest.mark.parametrize(("message", "settings"), IMPOSSIBLE_GATES.items())
def test_an_impossible_gate_is_refused_in_the_house_form(message, settings):
    with pytest.raises(ConfigError) as refusal:
        Gate(**settings)
    assert message in str(refusal.value)
    assert HOUSE_FORM.search(str(refusal.value))


@pytest.mark.parametrize(("message", "settings"), IMPOSSIBLE_WEIGHTS.items())
def test_an_impossible_weight_is_refused_in_the_house_form(message, settings):
    with pytest.raises(ConfigError) as refusal:
        Weight(**settings)
    assert message in str(refusal.value)
    assert HOUSE_FORM.search(str(refusal.value))


@pytest.mark.parametrize(("message", "settings"), IMPOSSIBLE_CORRECTIONS.items())
def test_an_impossible_correction_is_refused_in_the_house_form(message, settings):
    with pytest.raises(ConfigError) as refusal:
        Correction.from_settings(settings)
    assert message in str(refusal.value)
    assert HOUSE_FORM.search(str(refusal.value))


UNKNOWN = {
    "Correction has no field 'weights'. Did you mean 'weight'?": {"weights": {"level": "token"}},
    "gates.0: Gate has no field 'uper'. Did you mean 'upper'?": {"gates": [{"metric": "ratio", "uper": 2.0}]},
    "gates.0: Gate has no field 'metrc'. Did you mean 'metric'?": {"gates": [{"metrc": "ratio", "upper": 2.0}]},
    "weight: Weight has no field 'outsid'. Did you mean 'outside'?": {"weight": {"level": "token", "outsid": "zero"}},
    "weight.limit: Limit has no field 'bond'. Did you mean 'bound'?": {
        "weight": {"level": "token", "limit": {"bond": 20.0}}
    },
    "got 'ratoi'. Did you mean 'ratio'?": {"gates": [{"metric": "ratoi", "upper": 2.0}]},
    "got 'bypas'. Did you mean 'bypass'?": {"policies": "bypas"},
    "got 'tokn'. Did you mean 'token'?": {"weight": {"level": "tokn"}},
    "Correction has no field 'zzz'. Known: policies, gates, weight": {"zzz": 1},
    "Gate needs metric to be 'ratio', 'k1'": {"gates": [{"metric": ["ratio"], "upper": 2.0}]},
    "Gate needs level to be 'token', 'segment'": {"gates": [{"metric": "ratio", "level": {}, "upper": 2.0}]},
}


@pytest.mark.parametrize(("message", "settings"), UNKNOWN.items())
def test_an_unknown_name_is_refused_with_its_path_and_the_nearest_one(message, settings):
    with pytest.raises(UnknownNameError) as refusal:
        Correction.from_settings(settings)
    assert message in str(refusal.value)


def test_an_unknown_key_is_named_before_what_follows_from_it():
    """A misspelt `metric` also leaves `metric` missing; only the first helps."""
    with pytest.raises(UnknownNameError, match="no field 'metrc'"):
        Gate(metrc="ratio", upper=2.0)


def test_a_long_value_is_cut_in_the_message():
    with pytest.raises(ConfigError) as refusal:
        Correction.from_settings({"weight": "x" * 100_000})
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize("settings", [None, 3, "token", ["a"], [("weight", None)]])
def test_settings_that_are_not_a_mapping_are_refused(settings):
    with pytest.raises(ConfigError, match="Correction needs a mapping of settings, got"):
        Correction.from_settings(settings)


def test_a_refusal_says_what_a_field_is_for_under_its_name():
    with pytest.raises(ConfigError) as refusal:
        losses.Clip(low=-0.2)
    assert str(refusal.value).startswith("Clip needs low to be at least 0, got -0.2. low: Where A < 0, ")


def test_bounds_may_meet_each_other_and_what_they_have_to_contain():
    for bounds in ({"lower": 1.0}, {"upper": 1.0}, {"lower": 1.0, "upper": 1.0}):
        for kind in (Gate, Weight, losses.Cispo):
            settings = {"metric": "ratio"} if kind is Gate else {"level": "token"}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = kind(**settings, **({"upper": None} if kind is losses.Cispo else {}) | bounds)
            assert {name: getattr(made, name) for name in bounds} == bounds
    assert Gate(metric="k1", lower=0.0, upper=0.0).upper == 0.0
    assert losses.Bapo(lower=0.8, lower_max=0.8, upper=1.2, upper_max=1.2).lowers == (0.8,)


def test_every_refusal_is_a_trimtab_error_and_a_value_error():
    for error in (TrimtabError, ValueError):
        with pytest.raises(error):
            Limit(bound=0.0)


PRESET_REFUSALS = {
    "Preset 'geo-rs' has no parameter 'token_upper'. It belongs to geo-rs+token-mis and geo-rs+token-tis": (
        "geo-rs",
        {"token_upper": 2.0},
    ),
    "Preset 'geo-rs' has no parameter 'seq_upper'. It belongs to geo-rs+seq-tis": ("geo-rs", {"seq_upper": 2.0}),
    "Preset 'geo-rs' has no parameter 'uper'. Did you mean 'upper'?": ("geo-rs", {"uper": 2.0}),
    "Preset 'kpop' needs phi to be a number, got 'x'": ("kpop", {"phi": "x"}),
    "Preset 'kpop' needs phi to be a number, got True": ("kpop", {"phi": True}),
    "Preset 'kpop' needs phi to be a number, got None": ("kpop", {"phi": None}),
    "Preset 'icepop' needs upper to be a number, or null to leave that side open, got '5'": ("icepop", {"upper": "5"}),
    "Preset 'dppo-tv' with low=None: Gate needs a lower or an upper bound": ("dppo-tv", {"low": None}),
    "Preset 'token-mis' with upper=None: Gate needs a lower or an upper bound": ("token-mis", {"upper": None}),
    "Preset 'geo-rs+token-mis' with lower=1.2: Gate needs lower <= upper, got [1.2, 1.01]": (
        "geo-rs+token-mis",
        {"lower": 1.2},
    ),
    "There is no preset 'geo-rs-token-mis'. Did you mean 'geo-rs+token-mis'?": ("geo-rs-token-mis", {}),
    "There is no preset 'bypass-geors'. Did you mean 'bypass-geo-rs'?": ("bypass-geors", {}),
    "There is no preset 'zzz'. Known: off, token-tis": ("zzz", {}),
    "Preset 'opsm' needs its own pair of policies, got 'bypass-opsm'": ("bypass-opsm", {}),
}


@pytest.mark.parametrize(("message", "call"), PRESET_REFUSALS.items())
def test_a_preset_refuses_what_it_does_not_know(message, call):
    name, parameters = call
    with pytest.raises(ConfigError) as refusal:
        preset(name, **parameters)
    assert message in str(refusal.value)
