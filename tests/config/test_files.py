"""YAML in and out: without loss, with dotted overrides, and with one clear message for a bad file."""

import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.batches import corrections
from trimtab import Correction, Gate, Weight, preset
from trimtab.config import advantages, losses
from trimtab.config.files import MOST_BYTES, correction_from, load, plain_data, to_yaml
from trimtab.config.presets import preset_names
from trimtab.errors import ConfigError, ConfigFileError, ConfigWarning, UnknownNameError

RULE = """
gates:
  - metric: ratio
    upper: 2
weight: {level: token, upper: 2}
"""


@pytest.fixture
def written(tmp_path: Path):
    def write(content: str | bytes) -> Path:
        path = tmp_path / "rule.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_survives_yaml(name, written):
    rule = preset(name)
    assert load(Correction, written(to_yaml(rule))) == rule


CHOSEN = [
    losses.Clip(low=0.1, high=0.3, dual=3, ratio_cap=4.0, log_limit=20),
    losses.Gspo(level="segment", log_upper=10.0),
    losses.Cispo(upper=None),  # an open bound that is not the default
    losses.Vespo(weights="inside", least=1e-6),
    advantages.Gae(normalise=None, value_lam=1),
    advantages.Gdpo(weights=(1, 2.5), normalise=advantages.Normalise()),  # a default inside, another outside
    advantages.Grpo(std=False, baseline="all", normalise=advantages.Normalise(mean=None, unit="sequence")),
    losses.Reduction(mode="token-sum", constant=4096),
    losses.KlPenalty(coefficient=1e-4, reduction=losses.Reduction(mode="token-mean")),
    losses.EntropyBonus(coefficient=0.0),
    advantages.Shaping(overlong=advantages.Overlong(max_length=5, buffer=2), normalise=advantages.Normalise()),
]


@pytest.mark.parametrize("value", CHOSEN, ids=lambda value: type(value).__name__)
def test_losses_and_estimators_survive_yaml_and_json(value, written):
    path = written(to_yaml(value))
    assert load(type(value), path) == value
    assert type(value).from_settings(json.loads(json.dumps(value.settings()))) == value
    if isinstance(value, losses.Objective):
        assert losses.loss_from(plain_data(path)) == value
    if isinstance(value, advantages.Estimator):
        assert advantages.estimator(**plain_data(path)) == value


@given(
    corrections(),
    st.sampled_from(["trained", "kept"]),
    st.sampled_from(["policy", "policy+kl"]),
    st.floats(1.0, 1e300),
)
def test_any_correction_survives_yaml(tmp_path_factory, rule, denominator, applies_to, bound):
    bounded = rule.weight is not None and rule.weight.level != "one" and rule.weight.bounds is None
    weight = rule.weight.but(upper=bound) if bounded else rule.weight
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        rule = rule.but(denominator=denominator, applies_to=applies_to, weight=weight)
        path = tmp_path_factory.getbasetemp() / "any.yaml"
        path.write_text(to_yaml(rule))
        assert load(Correction, path) == rule
        assert Correction.from_settings(rule.settings()) == rule


def test_yaml_leaves_defaults_out():
    assert to_yaml(preset("token-tis")) == "weight:\n  level: token\n  upper: 2.0\n"


OVERRIDES = {
    "gates.0.upper=3": Correction(gates=(Gate(metric="ratio", upper=3.0),), weight=Weight(level="token", upper=2.0)),
    "gates[0].upper=3": Correction(gates=(Gate(metric="ratio", upper=3.0),), weight=Weight(level="token", upper=2.0)),
    "gates.0.lower=1e-4": Correction(
        gates=(Gate(metric="ratio", lower=0.0001, upper=2.0),), weight=Weight(level="token", upper=2.0)
    ),
    "weight.upper=null": Correction(gates=(Gate(metric="ratio", upper=2.0),), weight=Weight(level="token")),
    "weight=null": Correction(gates=(Gate(metric="ratio", upper=2.0),)),
    "gates=[]": Correction(weight=Weight(level="token", upper=2.0)),
    "policies=bypass": Correction(
        policies="bypass", gates=(Gate(metric="ratio", upper=2.0),), weight=Weight(level="token", upper=2.0)
    ),
    "weight.limit={bound: 20}": Correction(
        gates=(Gate(metric="ratio", upper=2.0),), weight=Weight(level="token", upper=2.0, limit={"bound": 20.0})
    ),
    "weight.upper=${gates.0.upper}": Correction(
        gates=(Gate(metric="ratio", upper=2.0),), weight=Weight(level="token", upper=2.0)
    ),
}


@pytest.mark.parametrize(("override", "expected"), OVERRIDES.items())
def test_a_dotted_override_changes_one_setting(override, expected, written):
    assert load(Correction, written(RULE), [override]) == expected


def test_an_override_may_go_sixty_levels_deep_and_no_further(written):
    for levels, sentence in ((60, "has no field"), (61, "goes more than 60 levels deep")):
        with pytest.raises(ConfigError, match=sentence):
            load(Correction, written(RULE), [".".join(["weight", *["a"] * (levels - 1)]) + "=1"])


def test_overrides_apply_in_order(written):
    rule = load(Correction, written(RULE), ["weight.upper=5", "weight.upper=7"])
    assert rule.weight == Weight(level="token", upper=7.0)


def test_a_small_number_without_a_dot_is_a_number_in_a_file(written):
    rule = load(Correction, written("gates: [{metric: ratio, lower: 1e-4}]"))
    assert rule.gates[0].lower == 0.0001


BAD_OVERRIDES = {
    "upper": (ConfigError, "An override needs the form key=value, got 'upper'"),
    "=3": (ConfigError, "An override needs the form key=value, got '=3'"),
    "gates.1.upper=3": (ConfigError, "The override 'gates.1.upper=3' needs an item that exists. Items count from 0."),
    "gates.x.upper=3": (ConfigError, "The override 'gates.x.upper=3' does not fit"),
    "gates.0.upper={a": (ConfigError, "The override 'gates.0.upper={a' does not fit"),
    "gates.0.upper=a: b": (ConfigError, "The override 'gates.0.upper=a: b' does not fit"),
    "gates.0.upper=3\nlower: 1": (ConfigError, "does not fit: it needs one value"),
    "weight.uper=3": (UnknownNameError, "weight: Weight has no field 'uper'. Did you mean 'upper'?"),
    "weight.upper=x": (ConfigError, "weight: Weight needs upper to be a number, got 'x'"),
    "weight.upper=true": (ConfigError, "weight: Weight needs upper to be a number, got True"),
    "weight.upper=.nan": (ConfigError, "weight: Weight needs upper to be a finite number"),
    "weight.upper=${nope}": (
        ConfigFileError,
        "weight.upper needs a reference to a setting that is there, got '${nope}'",
    ),
}


@pytest.mark.parametrize(("override", "refusal"), BAD_OVERRIDES.items())
def test_a_bad_override_is_refused_by_name(override, refusal, written):
    kind, message = refusal
    with pytest.raises(kind) as found:
        load(Correction, written(RULE), [override])
    assert message in str(found.value)


BAD_FILES = {
    "got an empty file": "",
    "rule.yaml needs `field: value` lines, got an empty file": "# only a comment\n",
    "rule.yaml needs `field: value` lines, got one value": "5",
    "rule.yaml needs to be YAML, got a problem: did not find expected node content at line 2": "gates: [\n",
    "cannot start any token at line 1, column 1": "\tgates: 1",
    "the key 'gates' twice at line 2": "gates: []\ngates: []",
    "needs to be UTF-8 text, got byte 0xff at 0": b"\xff\xfe\x00",
    "control characters are not allowed": b"\x00",
    "rule.yaml needs `field: value` lines, got a list": "- a\n- b",
    "rule.yaml needs `field: value` lines, got one piece of text": "hello",
    "the anchor a contains itself at line 2": "weight: &a\n  level: *a",
    "rule.yaml: policies needs a reference to a setting that is there, got '${nope}'": "policies: ${nope}",
    "could not determine a constructor for the tag": "!!python/object/apply:os.getcwd []",
    "nested too deeply": "- " * 3000,
    "rule.yaml: gates.0: Gate has no field 'uper'. Did you mean 'upper'?": "gates: [{metric: ratio, uper: 2}]",
    "rule.yaml needs to be at most 1 MB of settings, got 10.0 MB": b"x" * 10_000_000,
}


@pytest.mark.parametrize(("message", "content"), BAD_FILES.items())
def test_a_bad_file_gives_one_clear_message(message, content, written):
    with pytest.raises(ConfigError) as refusal:
        load(Correction, written(content))
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.mark.parametrize("key", ["1", "null", "true", "1.5", "2020-01-01"])
def test_a_key_that_is_no_text_is_an_unknown_name(key, written):
    for text in (f"{key}: 1", f"weight: {{{key}: 1}}", f"gates: [{{metric: ratio, {key}: 1}}]"):
        with pytest.raises(UnknownNameError, match="has no field"):
            load(Correction, written(text))


def test_a_file_that_expands_without_end_is_refused_quickly(written):
    doubling = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9))
    with pytest.raises(ConfigFileError, match="needs to be YAML"):
        load(Correction, written(f"a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n{doubling}"))


def test_the_largest_file_that_is_read_is_read(written):
    text = RULE + "#" * (MOST_BYTES - len(RULE))
    assert load(Correction, written(text)).weight == Weight(level="token", upper=2.0)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_says_why(name, tmp_path):
    with pytest.raises(ConfigFileError, match=r"cannot be read: .*\. Check the path\."):
        load(Correction, tmp_path / name)


def test_an_empty_mapping_is_a_correction_that_warns(written):
    with pytest.warns(ConfigWarning, match="corrects nothing"):
        assert load(Correction, written("{}")).gates == ()


def test_a_name_is_a_preset_and_its_overrides_are_parameters():
    assert correction_from("geo-rs+token-mis", ["token_upper=1e1"]) == preset("geo-rs+token-mis", token_upper=10.0)
    assert correction_from("token-mis", ["lower=0.5", "upper=null"]) == preset("token-mis", lower=0.5, upper=None)


def test_a_path_is_a_file_and_its_overrides_are_keys(written):
    path = written(RULE)
    assert correction_from(str(path), ["weight.upper=4"]).weight == Weight(level="token", upper=4.0)


def test_a_missing_yaml_name_is_a_missing_file_not_an_unknown_preset():
    with pytest.raises(ConfigFileError, match=r"nowhere\.yaml cannot be read: No such file or directory"):
        correction_from("nowhere.yaml")


def test_a_preset_wins_over_a_file_of_the_same_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "icepop").write_text(RULE)
    (tmp_path / "mine").write_text(RULE)
    assert correction_from("icepop") == preset("icepop")
    assert correction_from("mine").weight == Weight(level="token", upper=2.0)


@pytest.mark.parametrize("name", ["x" * 5000, "x\0y", ""])
def test_a_name_that_cannot_be_a_path_is_an_unknown_preset(name):
    with pytest.raises(UnknownNameError, match="There is no preset"):
        correction_from(name)
