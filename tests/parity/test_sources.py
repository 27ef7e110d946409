"""The places that remarks name are there in the installed framework: the file, the line, and what it is in."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
from pathlib import Path

import pytest

from trimtab.dialects import DIALECTS

PACKAGES = {
    "verl": "verl",
    "areal": "areal",
    "skyrl": "skyrl",
    "trl": "trl",
    "openrlhf": "openrlhf",
    "ms-swift": "ms-swift",
}
"""The distribution of each framework that is installed here."""
PLACES = [
    (name, remark.source)
    for name in PACKAGES
    for remark in DIALECTS[name].remarks
    if remark.source and (not remark.since or remark.since == importlib.metadata.version(PACKAGES[name]))
]


def _root(name: str) -> Path:
    spec = importlib.util.find_spec(name.removeprefix("ms-"))
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations)))


def _encloses(tree: ast.AST, line: int, symbol: str) -> bool:
    """Whether a class or function of that name, `Outer.inner` for a nested one, spans the line."""
    outer, _, inner = symbol.partition(".")
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [each for each in ast.walk(tree) if isinstance(each, kinds) and each.name == outer]
    if inner:
        return any(_encloses(each, line, inner) for each in found)
    return any(each.lineno <= line <= (each.end_lineno or each.lineno) for each in found)


@pytest.mark.parametrize(("name", "source"), PLACES)
def test_the_place_is_in_the_installed_framework(name: str, source: str) -> None:
    place, _, symbol = source.partition(" ")
    path, _, lines = place.partition(":")
    text = (_root(name) / path).read_text(encoding="utf-8")
    line = int(lines.partition("-")[0])
    assert 1 <= line <= text.count("\n") + 1
    if symbol:
        assert _encloses(ast.parse(text), line, symbol), source
