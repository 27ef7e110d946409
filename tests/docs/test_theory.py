"""The section of each preset: tests that exist, numbers of the lab as it ran, edges where the rule has them, pictures that are drawn."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from trimtab.config.presets import PRESETS
from trimtab.lab.results import read_results

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import fates  # noqa: E402
import held  # noqa: E402
import pictures  # noqa: E402
import theory  # noqa: E402

PAGE = (ROOT / "docs/corrections.md").read_text(encoding="utf-8")
LAB = read_results(ROOT / "docs/lab.json").with_verdicts()


def section(name: str) -> str:
    return PAGE.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_formula_pictures_firing_costs_verdict_and_tests(name: str):
    text = section(name)
    titles = re.findall(r"^### (.+)$", text, re.MULTILINE)
    assert titles == ["When it fires", "What it costs", "In the lab", "Tested by"]
    assert "```text\nℓ = log" in text
    assert len(re.findall(r"!\[[^\]]+\]\(theory/[\w-]+\.svg\)", text)) == len(pictures.kinds_of(name)) >= 2


def test_every_test_that_is_named_exists_and_a_name_in_brackets_is_a_case_of_it():
    named = re.findall(r"^- `(tests/[\w/]+\.py)::(test_\w+)(?:\[(.+)\])?`$", PAGE, re.MULTILINE)
    assert len(named) > 5 * len(PRESETS)
    for file, function, case in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {function}\(", text, re.MULTILINE), (file, function)
        assert not case or (case in PRESETS and f'@pytest.mark.parametrize("name", PRESETS)\ndef {function}(' in text)


def test_a_rule_is_held_by_the_tests_of_what_is_in_it():
    by_name = {name: " ".join(held.tests_of(name, each())) for name, each in PRESETS.items()}
    assert [name for name, tests in by_name.items() if "test_a_veto_condemns" in tests] == ["veto"]
    assert [name for name, tests in by_name.items() if "test_a_budget_drops" in tests] == ["m2po"]
    assert [name for name, tests in by_name.items() if "test_prefix.py" in tests] == ["prefix-tis", "minpro"]
    assert "test_weights_at_each_level" not in by_name["off"]


def test_the_lab_is_quoted_with_each_seed():
    # docs/lab.json, stale, k3-rs: the last accuracies of seeds 0, 1 and 2
    cells = [f"{each.last:.2f}" for each in LAB.cells("stale", "k3-rs")]
    assert len(cells) == len(LAB.seeds) == 3
    assert "  ".join(cells) in theory.lab_text("k3-rs", LAB)
    assert "seeds 0, 1, 2 after 400 steps" in theory.lab_text("k3-rs", LAB)
    assert "not among the [lab's]" in theory.lab_text("vaco", LAB)
    assert "`kpop(phi=0.1)`" in theory.lab_text("kpop", LAB)


@pytest.mark.parametrize(
    ("name", "alone", "alike"),
    [
        ("token-tis", "held at a bound above 2", "held at a bound above 2"),
        ("icepop", "weight 0 below 0.5 and above 5", "weight 0 below 0.5 and above 5"),
        ("geo-rs", "rejected below 0.605 and above 1.645", "rejected below 0.99 and above 1.01"),  # 0.99^50, 1.01^50
        ("seq-tis", "held at a bound above 2", "held at a bound above 1.014"),  # 2^(1/50) = 1.01396
        ("veto", "rejected below 0.0001 and above 100", "rejected below 0.0001 and above 100"),
        ("off", "nothing happens up to a factor of 100,000", "nothing happens"),
    ],
)
def test_a_rule_fires_where_its_bounds_are(name: str, alone: str, alike: str):
    assert fates.told(name, fates.ALONE, 1.0).startswith(alone)
    assert fates.told(name, fates.ALIKE, 1.0).startswith(alike)


def test_a_rule_that_looks_at_advantages_is_told_for_both():
    assert "with advantage +1 nothing happens" in theory.firing("opsm")
    assert "with advantage −1 weight 0 below 0.9999" in theory.firing("opsm")


@pytest.mark.parametrize("name", ["icepop", "dppo-tv", "geo-rs+token-mis"])
def test_a_picture_is_sound_svg_that_loads_nothing_and_knows_the_dark(name: str):
    for path, text in pictures.pictures(name).items():
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        assert "prefers-color-scheme: dark" in text
        assert "nan" not in text
        assert not re.search(r"(?:href|src)=|url\((?!#)", text), path
