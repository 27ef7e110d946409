"""A public name means one thing wherever it stands: every class and function of `src` has one home."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import trimtab

SRC = Path(trimtab.__file__).parent

# Each framework fills the same roles: `correction_of` in dialects/frameworks/trl.py and in tunix.py beside it is one interface.
ROLES = {
    "main": r"(cli/__init__|plugins/(openrlhf|skyrl))\.py",  # what a program runs
    "correction_of": r"dialects/frameworks/\w+\.py",
    "candidates": r"dialects/frameworks/\w+\.py",
    "loss_of": r"dialects/frameworks/\w+\.py",
    "advantage_of": r"dialects/frameworks/\w+\.py",
    "correction": r"logged/\w+\.py",
    "loss": r"(logged|plugins)/\w+\.py",  # a framework's loss, under the name its users write
}
# The fast form carries the names of the plain form, which it mirrors.
MIRROR = "core/fast/"


def public_names(source: str) -> list[str]:
    """What a module defines at its top level and does not hide; an import defines nothing."""
    kinds = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    defined = [node.name for node in ast.parse(source).body if isinstance(node, kinds)]
    return sorted({name for name in defined if not name.startswith("_")})


def several_homes(sources: dict[str, str]) -> dict[str, list[str]]:
    """The names that more than one module defines, with the modules; all that fill one role count as one."""
    homes: dict[str, list[str]] = {}
    for path, source in sources.items():
        for name in public_names(source):
            role = ROLES.get(name, "(?!)")
            if path.startswith(MIRROR):  # one home among its own files
                name = f"{MIRROR}{name}"
            homes.setdefault(name, []).append(role if re.fullmatch(role, path) else path)
    return {name: sorted(set(found)) for name, found in homes.items() if len(set(found)) > 1}


def test_a_public_name_has_one_meaning():
    sources = {path.relative_to(SRC).as_posix(): path.read_text() for path in SRC.rglob("*.py")}
    found = several_homes(sources)
    assert found == {}


def test_a_second_meaning_is_seen_and_roles_imports_and_hidden_names_are_none():
    sources = {
        "core/one.py": "def ratio(): ...\nclass Gate: ...\ndef _own(): ...",
        "losses/two.py": "from trimtab.core.one import Gate\ndef ratio(): ...\ndef _own(): ...",
        "dialects/frameworks/verl.py": "def loss_of(): ...",
        "dialects/frameworks/trl.py": "def loss_of(): ...",
        "dialects/frameworks/swift.py": "async def other(): ...",
    }
    assert several_homes(sources) == {"ratio": ["core/one.py", "losses/two.py"]}
    mirrored = sources | {"core/fast/one.py": "def ratio(): ...", "core/fast/two.py": "def weigh(): ..."}
    assert set(several_homes(mirrored)) == {"ratio"}
    twice = {"core/fast/one.py": "def ratio(): ...", "core/fast/two.py": "def ratio(): ..."}
    assert several_homes(twice) == {"core/fast/ratio": ["core/fast/one.py", "core/fast/two.py"]}
    misplaced = sources | {"dialects/loss.py": "def loss_of(): ...\nclass other: ..."}
    assert set(several_homes(misplaced)) == {"ratio", "loss_of", "other"}
