"""The places that remarks name are there in the framework: the file, the line, and what it is in, of the release it is named of."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from pathlib import Path

import pytest

from trimtab.dialects import DIALECTS
from trimtab.dialects.framework import Dialect, Remark

INSTALLED = ("verl", "areal", "skyrl", "trl", "openrlhf", "ms-swift")
"""Frameworks that are installed here, by the names of their distributions; the package of ms-swift is swift."""
FOLDERS = [*sys.path, str(Path(__file__).parents[2] / ".venv-skyrl")]
"""Where releases are installed: here, and the one that `make parity-skyrl` puts before them."""


def release_of(dialect: Dialect, remark: Remark) -> str:
    """The release whose line a remark names: the one read by default, or the nearest to it of which the remark holds."""
    fixed = remark.fixed.partition(",")[0]
    holds = [
        each
        for each in dialect.releases or (dialect.version,)
        if (not remark.since or dialect.position(each) >= dialect.position(remark.since))
        and (not fixed or dialect.position(each) < dialect.position(fixed))
    ]
    return dialect.version if dialect.version in holds else min(holds, key=lambda each: _apart(dialect, each))


def _apart(dialect: Dialect, release: str) -> int:
    return abs(dialect.releases.index(release) - dialect.releases.index(dialect.version))


PLACES = [
    (name, release_of(DIALECTS[name], remark), remark.source)
    for name in INSTALLED
    for remark in DIALECTS[name].remarks
    if remark.source
]


def _root(name: str, release: str) -> Path:
    """The package of a framework in a folder where this release of it is installed."""
    for folder in FOLDERS:
        for each in importlib.metadata.distributions(name=name, path=[folder]):
            if each.version == release:
                return Path(str(each.locate_file(name.removeprefix("ms-"))))
    pytest.fail(f"{name} {release} is not installed: make parity-skyrl")


def _encloses(tree: ast.AST, line: int, symbol: str) -> bool:
    """Whether a class or function of that name, `Outer.inner` for a nested one, spans the line."""
    outer, _, inner = symbol.partition(".")
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [each for each in ast.walk(tree) if isinstance(each, kinds) and each.name == outer]
    if inner:
        return any(_encloses(each, line, inner) for each in found)
    return any(each.lineno <= line <= (each.end_lineno or each.lineno) for each in found)


@pytest.mark.parametrize(("name", "release", "source"), PLACES)
def test_the_place_is_in_the_release_that_it_is_named_of(name: str, release: str, source: str) -> None:
    place, _, symbol = source.partition(" ")
    path, _, lines = place.partition(":")
    text = (_root(name, release) / path).read_text(encoding="utf-8")
    line = int(lines.partition("-")[0])
    assert 1 <= line <= text.count("\n") + 1
    if symbol:
        assert _encloses(ast.parse(text), line, symbol), source
