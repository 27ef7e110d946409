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
    "asked_of": r"train/engines/(vllm|sglang)/\w+\.py",  # each project's servers
    "check_run": r"train/engines/(vllm|sglang)/\w+\.py",
    "head_of": r"train/engines/(vllm|sglang)/\w+\.py",
    "loss": r"(logged|plugins)/\w+\.py",  # a framework's loss, under the name its users write
}
# The fast form carries the names of the plain form, which it mirrors.
MIRROR = "core/fast/"
# A file for a framework is named for it wherever it stands; settings for what computes them; a command for the folder that it calls.
NAMED_ALIKE = r"(dialects/frameworks|check/frameworks|logged|plugins|records/dumps|core/fast|config|cli)/(\w+/)?\w+\.py"
# A file or a constant with several meanings, by the folder that is to rename its own. A name that has one meaning again leaves the list.
STEMS_LEFT: dict[str, str] = {
    "advantage": "inputs",
    "core": "bounds head metrics ranks staleness",
    "dialects": "candidate messages write",
    "explain": "thresholds",
    "lab": "page panels verdict",
    "losses": "policy",
    "report": "compare rollouts run",
    "train": "engine files judge protocol sampling scoring server",
}
CONSTANTS_LEFT: dict[str, str] = {
    "advantage": "AGREE NAMED NEEDED OUTCOMES ROUNDING",
    "config": "ESTIMATORS GAPS IDLE LEAST MEANT MOST MOST_VALUES TOKENS",
    "core": "AGES BLOCK ENDS POINTS",
    "dialects": (
        "ALWAYS BRANCHES COMMANDS COMMON DEEPEST ENGINES FAR FULL_NAME FUNCTION KNOWN LARGEST LONGEST METHODS "
        "MOST_KEYS NAME NOTHING NUMBERS OFF OPERATIONS OTHERS PARTS PASSED PLAIN REPEATED RULES SECTIONS "
        "TRAINERS UNITS"
    ),
    "lab": "CURVES ERROR EXACT FIRST GRACE HEAD OWN",
    "report": "ENOUGH FIRST_STEP KINDS PER_TOKEN QUIET REMEDIES",
    "train": "CAUSES CHUNK DTYPES LEAVE LINGER LOOK MEMORY MOST_TOKENS POLL READERS ROOM SCHEMA START VERIFIERS",
}
WITHOUT_MEANING = {"__init__", "__main__", "table"}
# What a file for a framework calls its tables (TRIED, LOSS) is one interface too.
OWN_CONSTANTS = r"(dialects/frameworks|check/frameworks|logged|plugins|core/fast)/\w+\.py"


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


def public_constants(source: str) -> list[str]:
    """The names in capitals that a module assigns at its top level and does not hide."""
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign | ast.AnnAssign)]
    targets = [each for node in assigned for each in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    names = {each.id for each in targets if isinstance(each, ast.Name)}
    return sorted(name for name in names if re.fullmatch("[A-Z][A-Z0-9_]*", name))


def several_constants(sources: dict[str, str]) -> dict[str, list[str]]:
    """The constants that more than one module defines, with the modules."""
    homes: dict[str, list[str]] = {}
    for path, source in sources.items():
        for name in public_constants(source) if not re.fullmatch(OWN_CONSTANTS, path) else []:
            homes.setdefault(name, []).append(path)
    return {name: sorted(paths) for name, paths in homes.items() if len(paths) > 1}


def several_stems(sources: dict[str, str]) -> dict[str, list[str]]:
    """The names of files that stand in more than one folder, with the files."""
    homes: dict[str, list[str]] = {}
    for path in sources:
        if (stem := Path(path).stem) not in WITHOUT_MEANING and not re.fullmatch(NAMED_ALIKE, path):
            homes.setdefault(stem, []).append(path)
    return {stem: sorted(paths) for stem, paths in homes.items() if len(paths) > 1}


def test_a_public_name_has_one_meaning():
    sources = {path.relative_to(SRC).as_posix(): path.read_text() for path in SRC.rglob("*.py")}
    found = several_homes(sources)
    assert found == {}


def test_a_file_and_a_constant_have_one_meaning_but_for_those_that_are_listed():
    sources = {path.relative_to(SRC).as_posix(): path.read_text() for path in SRC.rglob("*.py")}
    for found, listed in ((several_stems(sources), STEMS_LEFT), (several_constants(sources), CONSTANTS_LEFT)):
        left = " ".join(listed.values()).split()
        assert {name: homes for name, homes in found.items() if name not in left} == {}
        assert sorted(set(left) - set(found)) == []  # has one meaning now: take it off the list


def test_a_second_file_or_constant_of_a_name_is_seen_and_frameworks_faces_and_hidden_names_are_none():
    sources = {
        "core/gate.py": "LIMIT = 1\n_ROOM = 2\nfar: int = 3\nONLY = 1",
        "train/gate.py": "LIMIT: int = 4\n_ROOM = 5\nfar = 6",
        "config/gate.py": "def kept():\n    LIMIT = 2",
        "core/fast/gate.py": "LIMIT = 1",
        "plugins/verl.py": "LIMIT = 1",
        "logged/verl.py": "",
    }
    assert several_stems(sources) == {"gate": ["core/gate.py", "train/gate.py"]}
    assert several_constants(sources) == {"LIMIT": ["core/gate.py", "train/gate.py"]}


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
