"""`${a.b}` is another setting of the same file; nothing else is read because a file says so, and nothing grows without end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab import Correction, preset
from trimtab.cli.train import config_from
from trimtab.config.files import explained_yaml, load, plain_data, plain_settings, to_yaml
from trimtab.config.interpolation import escape_references, without_references
from trimtab.config.safe_yaml import settings_of, yaml_of
from trimtab.config.training import Train
from trimtab.dialects.sources.settings import flat_settings
from trimtab.errors import ConfigFileError


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "rule.yaml").write_text(text)
        return tmp_path / "rule.yaml"

    return write


FOUND = {
    "a: 1\nb: ${a}": 1,
    "a: {x: [1, 2]}\nb: ${a}": {"x": [1, 2]},
    "a: {x: [1, {y: 2}]}\nb: ${a.x.1.y}": 2,
    "a: {x: [1, {y: 2}]}\nb: ${a.x[1].y}": 2,
    "a: {x: [1, 2]}\nb: ${a.x.-1}": 2,
    "a: one\nb: ${a} and ${c}\nc: 2": "one and 2",
    "a: ${c}\nb: ${a.x}\nc: {x: 5}": 5,  # through a section that is itself a reference
    "a: 1\nb: ${.a}": 1,
    "c: 7\nb: {x: '${..c}'}": {"x": 7},
    "2: 7\nb: ${2}": 7,
    "b: a \\${x}": "a ${x}",
    "b: costs 5$ {or} $x": "costs 5$ {or} $x",
}


@pytest.mark.parametrize(("text", "expected"), FOUND.items())
def test_a_reference_is_what_it_points_at(text, expected, written):
    assert plain_data(written(text))["b"] == expected


REFUSED = {
    "${oc.env:SECRET}": "needs a value or a reference such as ${a.b}, got the resolver '${oc.env:SECRET}'",
    "text ${oc.env:SECRET,x} text": "got the resolver",
    "${oc.decode:${a}}": "needs a reference such as ${a.b}",
    "${env:SECRET}": "got the resolver",
    "${oc.create:{}}": "needs a reference such as ${a.b}",
    "${:}": "got the resolver",
    "${}": "needs a reference such as ${a.b}",
    "${": "needs a reference such as ${a.b}",
    "${nope}": "needs a reference to a setting that is there",
    "${a.x}": "needs a reference to a setting that is there",
    "${record.project}": "leads in a circle",
    "x${record}": "leads in a circle",
    "a ${b}": "which holds a section",
}


@pytest.mark.parametrize(("value", "reason"), REFUSED.items())
def test_anything_else_is_refused_with_its_place(value, reason, written, monkeypatch):
    monkeypatch.setenv("SECRET", "canary")
    path = written(yaml_of({"a": 1, "b": {"c": 1}, "record": {"project": value}}))
    for ask in (
        lambda: plain_data(path),
        lambda: plain_settings(None, ["a=1", "b={c: 1}", f"record.project={value!r}"]),
    ):
        with pytest.raises(ConfigFileError) as refusal:
            ask()
        assert "record.project needs" in str(refusal.value)
        assert reason in str(refusal.value)
        assert "canary" not in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_resolver_is_not_run_on_the_way_of_an_override_either(written, monkeypatch):
    monkeypatch.setenv("SECRET", "canary")
    path = written("a: ${oc.env:SECRET}\nrecord: {project: x}")
    with pytest.raises(ConfigFileError, match="got the resolver"):
        plain_data(path, ["record.project=b"])
    assert plain_data(path, ["a.b=1"])["a"] == {"b": 1}  # what stood there is gone


def test_the_environment_stays_out_of_a_run(monkeypatch):
    monkeypatch.setenv("SECRET", "canary")
    with pytest.raises(ConfigFileError, match=r"record\.project needs a value or a reference such as \$\{a\.b\}"):
        config_from(["record.project=${oc.env:SECRET}"])


@pytest.mark.parametrize("value", ["${oc.env:SECRET}", "x ${oc.env:SECRET}", "${oc.decode:1}"])
def test_what_a_frameworks_file_would_resolve_stays_text(value, written, monkeypatch):
    monkeypatch.setenv("SECRET", "canary")
    assert flat_settings(written(yaml_of({"a": {"b": value}}))) == {"a.b": value}
    assert flat_settings({"a": {"b": value}}) == {"a.b": value}
    assert flat_settings([f"a.b={value}"]) == {"a.b": value}


GROWING = {
    "doubled text": "a0: xxxxxxxxxx\n" + "".join(f"a{n}: '${{a{n - 1}}}${{a{n - 1}}}'\n" for n in range(1, 60)),
    "doubled lists": "a0: [1]\n" + "".join(f"a{n}: ['${{a{n - 1}}}', '${{a{n - 1}}}']\n" for n in range(1, 60)),
    "a long way": "a0: 1\n" + "".join(f"a{n}: ${{a{n - 1}}}\n" for n in range(1, 2000)),
    "a section in itself": "a: {b: '${a}'}\n",
    "two in each other": "a: ${b}\nb: ${a}\n",
    "many in one": "a: " + "x" * 1000 + "\nb: '" + "${a}" * 100_000 + "'\n",
}


@pytest.mark.parametrize("what", GROWING)
def test_references_that_grow_or_circle_are_refused(what, written):
    with pytest.raises(ConfigFileError, match=r"needs (references|a reference) that"):
        plain_data(written(GROWING[what]))


ODD = ["${", "1e-4", "2020-01-01", "a\\${b}", "\\"]
numbers = st.integers(-(10**300), 10**300) | st.floats(allow_nan=False)
leaves = st.none() | st.booleans() | numbers | st.text() | st.sampled_from(ODD)
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@given(trees)
def test_any_tree_survives_being_written(tree):
    assert without_references(settings_of(yaml_of(escape_references(tree))), "text") == tree


def test_text_with_a_sign_of_a_reference_survives_yaml(written):
    run = Train(task={"name": "chain", "system": "Say ${x}."})
    assert load(Train, written(explained_yaml(run))) == run
    assert load(Train, written(to_yaml(run))) == run
    assert load(Correction, written(to_yaml(preset("icepop")))) == preset("icepop")
