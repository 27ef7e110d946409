"""Settings are values: frozen, comparable, described field by field, and described to editors."""

import copy
import pickle
import warnings
from typing import Any

import pytest
from hypothesis import given

from tests.laws.batches import corrections
from trimtab import Correction, Gate, Limit, Weight, preset
from trimtab.config.files import to_yaml
from trimtab.config.presets import PRESETS, preset_names
from trimtab.errors import ConfigError, ConfigWarning

KINDS = (Correction, Gate, Weight, Limit)


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (preset("geo-rs"), "policies"),
        (Gate(metric="ratio", upper=2.0), "upper"),
        (Weight(level="token"), "level"),
        (Limit(bound=20.0), "bound"),
    ],
)
def test_a_value_cannot_be_changed(value, field):
    with pytest.raises(ValueError, match="frozen"):
        setattr(value, field, None)


def test_equal_settings_are_equal_values_with_one_hash():
    named, spelt = preset("geo-rs"), Correction(gates=[Gate(metric="ratio", level="sequence", lower=0.99, upper=1.01)])
    assert named == spelt
    assert hash(named) == hash(spelt)
    assert len({named, spelt, preset("geo-rs", upper=1.02)}) == 2


def test_what_is_implied_is_filled_in_so_that_two_spellings_are_equal():
    assert Gate(metric="k3", level="sequence", upper=1.0) == Gate(
        metric="k3", level="sequence", agg="mean", direction="forward", upper=1.0
    )
    assert Gate(metric="second_moment", level="batch", upper=1.0).agg == "budget"


def test_an_integer_is_a_number():
    assert Gate(metric="ratio", upper=2) == Gate(metric="ratio", upper=2.0)


def test_but_changes_a_field_and_checks_again():
    gate = Gate(metric="ratio", upper=2.0)
    assert gate.but(upper=3.0) == Gate(metric="ratio", upper=3.0)
    assert gate.upper == 2.0
    with pytest.raises(ConfigError, match="lower <= upper"):
        gate.but(lower=3.0)


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_survives_copying_and_pickling(name):
    rule = preset(name)
    assert copy.deepcopy(rule) == rule
    assert pickle.loads(pickle.dumps(rule)) == rule


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_a_description_that_is_a_sentence(kind):
    for name, info in kind.model_fields.items():
        assert info.description, name
        assert info.description.endswith("."), name


def test_a_rule_says_which_policies_and_advantages_it_needs():
    assert preset("token-tis").needs == ("behavior", "proximal")
    assert preset("bypass-token-tis").needs == ("behavior", "current")
    assert preset("opsm").needs == ("behavior", "proximal", "current")
    assert preset("opsm").needs_advantages
    assert not preset("geo-rs").needs_advantages


def test_presets_are_new_values_by_name_with_documented_stories():
    for name, each in PRESETS.items():
        assert each.name == name
        assert each.meaning.endswith(".")
        assert each.source
        assert each() == preset(name)


def test_the_presets_asked_for_exist():
    asked = (
        "off token-tis token-mis icepop kpop seq-tis seq-mis geo-rs geo-rs+token-mis geo-rs+token-tis geo-rs+seq-tis "
        "k2-rs k3-rs seq-max-k3 veto opsm m2po dppo-tv dppo-kl vaco seq-logprob-error prefix-tis minpro score-centering "
        "score-centering+tis score-centering+icepop"
    )
    assert list(PRESETS) == asked.split()


def test_a_bypass_preset_is_the_preset_against_the_current_policy():
    assert preset("bypass-geo-rs", upper=1.1) == preset("geo-rs", upper=1.1).but(policies="bypass")


# ── JSON schema ────────────────────────────────────────────────────────────────────────────────────────────────────────


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], path: str = "$") -> list[str]:
    """A structural check of the parts of JSON schema that pydantic writes for our settings."""
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root, path)
    if "anyOf" in schema:
        found = [problems(value, choice, root, path) for choice in schema["anyOf"]]
        return [] if any(not each for each in found) else found[0]
    kinds = {"object": dict, "array": list, "string": str, "number": (int, float), "null": type(None), "boolean": bool}
    if "type" in schema and (
        not isinstance(value, kinds[schema["type"]]) or isinstance(value, bool) != (schema["type"] == "boolean")
    ):
        return [f"{path}: {value!r} is no {schema['type']}"]
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return [f"{path}: {value!r} is not allowed"]
    found = [f"{path}: {value} is out of range"] if isinstance(value, float) and _out_of_range(value, schema) else []
    if isinstance(value, dict):
        fields = schema["properties"]
        found += [f"{path}: unknown {key}" for key in value if key not in fields]
        found += [f"{path}: {key} is missing" for key in schema.get("required", []) if key not in value]
        for key in value.keys() & fields.keys():
            found += problems(value[key], fields[key], root, f"{path}.{key}")
    if isinstance(value, list):
        for place, item in enumerate(value):
            found += problems(item, schema["items"], root, f"{path}.{place}")
    return found


def _out_of_range(value: float, schema: dict[str, Any]) -> bool:
    return value < schema.get("minimum", value) or (
        "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]
    )


@pytest.mark.parametrize("name", preset_names())
def test_the_schema_accepts_the_yaml_of_every_preset(name):
    from omegaconf import OmegaConf

    schema = Correction.model_json_schema()
    written = OmegaConf.to_container(OmegaConf.create(to_yaml(preset(name))))
    assert problems(written, schema, schema) == []


@given(corrections())
def test_the_schema_accepts_any_correction(rule):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        schema = Correction.model_json_schema()
        assert problems(rule.settings(), schema, schema) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"gate": []},
        {"gates": {"metric": "ratio"}},
        {"gates": [{"metric": "ratoi"}]},
        {"gates": [{"upper": 2.0}]},
        {"weight": {"level": "token", "upper": "2"}},
        {"weight": {"level": "token", "upper": True}},
        {"weight": {"level": "token", "limit": {"bound": 0.0}}},
        {"normalize": "micro-batch"},
    ],
)
def test_the_schema_refuses_what_the_settings_refuse(settings):
    schema = Correction.model_json_schema()
    assert problems(settings, schema, schema)
    with pytest.raises(ConfigError):
        Correction.from_settings(settings)


@pytest.mark.parametrize("kind", KINDS)
def test_the_schema_carries_the_descriptions_and_closes_the_fields(kind):
    schema = kind.model_json_schema()
    assert schema["additionalProperties"] is False
    assert {name: field["description"] for name, field in schema["properties"].items()} == {
        name: info.description for name, info in kind.model_fields.items()
    }
