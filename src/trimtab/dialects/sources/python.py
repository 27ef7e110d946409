"""The settings of a Python script, by its syntax alone: calls of `…Config`, assigned fields, parsers, commands in texts."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

from trimtab.dialects.reading import Finding
from trimtab.dialects.registry import COMMANDS, DIALECTS, SIGNATURES
from trimtab.dialects.sources.flags import keys_of
from trimtab.dialects.sources.grammar import ShellError
from trimtab.dialects.sources.launch import Launch, NamedFile, launches
from trimtab.dialects.sources.python_calls import OTHER_TRAINING, TRAINED
from trimtab.dialects.sources.python_flow import Flow, Made, MadeConfig, WorkError
from trimtab.dialects.sources.python_statements import walk
from trimtab.dialects.sources.unknown import Holes, Unknown, without_marks
from trimtab.errors import ConfigFileError

LINE = re.compile(
    r"\s*(?:\$ )?((?:[A-Z_]+=\S+ )*)(accelerate launch|python3? |torchrun |deepspeed |uv run |CUDA_VISIBLE_DEVICES"
    rf"|(?:{'|'.join(name for name, below in COMMANDS.items() if below)}) )"
)
ELSEWHERE = "which another place of the script sets differently"


def from_python(text: str, path: str) -> list[Launch]:
    """Every way in which the script says settings, each as a command would; and the modules it imports as programs."""
    try:
        module = ast.parse(without_marks(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise ConfigFileError(
            f"{path} needs to be Python, got a problem{f' at line {line}' if line else ''}: {_reason(error)}."
        ) from None
    try:
        return _launches(module)
    except RecursionError:
        raise ConfigFileError(f"{path} needs to be Python, got a problem: nested too deeply.") from None
    except WorkError as error:
        raise ConfigFileError(f"{path} needs to be a script that starts training, got {error}.") from None


def _launches(module: ast.Module) -> list[Launch]:
    holes = Holes()
    script = walk(module, holes, by_defaults=True)
    if not script.texts and not script.of("config"):
        script = walk(module, holes, by_defaults=False)  # what it trains stands behind an argument
    own = settings_made(script)
    imports = _imports(module)
    first = module.body[0].lineno if module.body else 1
    said = _commands(ast.get_docstring(module, clean=False) or "", first)
    program = next((each for each in imports if each.partition(".")[0] in KNOWN), imports[0] if imports else "")
    handed = tuple(NamedFile("**", each) for each in script.of("handed"))
    found: list[Launch] = []
    for each in said:
        keys = {**own, **each.keys} if own else each.keys
        said_there = (Finding("docstring", "note", IN_TEXT),) if _ours() & {_last(key) for key in each.keys} else ()
        found.append(Launch(keys, each.line, each.program, (*each.findings, *said_there), handed))
    if own and not said:
        found.append(Launch(own, 1, program, parents=handed))
    for command, line in dict.fromkeys(script.texts):
        found += [
            Launch({**own, **each.keys}, line, each.program or program, each.findings)
            for each in _run(command, holes, line)
        ]
    if not found and any(TRAINED.search(each) for each in imports):
        found.append(Launch({}, 1, program))
    rest = [Launch({}, 1, each) for each in imports if each.partition(".")[0] in KNOWN]
    return [*found, *rest] if found else []


# ── the settings that count ────────────────────────────────────────────────────────────────────────────────────────────


def settings_made(flow: Flow) -> dict[str, Any]:
    """The keys of all objects that count, over defaults of parsers and below what is assigned elsewhere."""
    found: dict[str, Any] = flow.of("default")
    kinds = [
        replace(one, keys={f"{place and f'{place}.'}{key}": value for key, value in one.keys.items()})
        for place, numbers in _chosen(flow)
        for one in [flow.alike(numbers)]
    ]
    for is_trained in (False, True):
        found |= _together([each for each in kinds if bool(TRAINED.search(each.kind)) is is_trained], flow)
    for key, value in flow.of("key").items():
        held = next((each for each in kinds if key in each.keys), None)
        is_other = held is not None and not flow.work.same(held.keys[key], value)
        found[key] = Unknown(key, held.line, ELSEWHERE) if held is not None and is_other else value
    return found


def _chosen(flow: Flow) -> list[tuple[str, list[int]]]:
    """The objects that count, those of one kind together, by their place in others where that tells several apart.

    Those handed to a trainer, where that is seen; and none that only stand in an object that is not chosen.
    """
    made: dict[int, MadeConfig] = flow.of("config")
    if any(TRAINED.search(each.kind) for each in made.values()):
        made = {number: each for number, each in made.items() if not OTHER_TRAINING.fullmatch(each.kind)}
    inner = {
        number: [(one, key) for key, value in each.keys.items() if isinstance(value, Made) for one in value.numbers]
        for number, each in made.items()
    }
    nested = {one for each in inner.values() for one, _ in each}
    used = {each.kind for each in made.values() if each.is_used}
    pending = [
        number for number, each in made.items() if each.is_used or (each.kind not in used and number not in nested)
    ]
    reached = dict.fromkeys(pending, "")
    while pending:
        number = pending.pop()
        for one, key in inner.get(number, ()):
            if one not in reached:
                reached[one] = f"{reached[number]}.{key}".lstrip(".")
                pending.append(one)
    places: dict[str, dict[str, list[int]]] = {}
    for number, each in made.items():
        if number in reached:
            places.setdefault(each.kind, {}).setdefault(reached[number], []).append(number)
    return [(place if len(each) > 1 else "", numbers) for each in places.values() for place, numbers in each.items()]


def _together(configs: Iterable[MadeConfig], flow: Flow) -> dict[str, Any]:
    """The keys of objects of several kinds; one that two of them set differently is unknown."""
    found: dict[str, tuple[Any, int]] = {}
    for each in configs:
        for key, value in each.keys.items():
            held, line = found.get(key, (value, each.line))
            if not flow.work.same(held, value):
                why = f"which lines {min(line, each.line)} and {max(line, each.line)} set differently"
                value = Unknown(key, None, why)
            found[key] = value, each.line
    return {key: value for key, (value, _) in found.items()}


# ── what it imports ────────────────────────────────────────────────────────────────────────────────────────────────────


IN_TEXT = "The settings are those of the command in the script's own text, with what the script sets."
KNOWN = {package for each in SIGNATURES.values() for package in each.packages}


@cache
def _ours() -> frozenset[str]:
    """The names, without their sections, of every key that some framework reads."""
    return frozenset(_last(path) for each in SIGNATURES for key in DIALECTS[each].keys for path in key.paths)


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _imports(module: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append(".".join([node.module, *(alias.name for alias in node.names[:1])]))
            found += [f"{node.module}.{alias.name}" for alias in node.names[1:]]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


# ── commands in texts ──────────────────────────────────────────────────────────────────────────────────────────────────


def _commands(text: str, first: int) -> list[Launch]:
    """Launch lines in a docstring, each with the lines it is continued on."""
    lines = text.splitlines()
    found: list[Launch] = []
    place = 0
    while place < len(lines):
        start = place
        if LINE.match(lines[place]):
            while lines[place].rstrip().endswith("\\") and place + 1 < len(lines):
                place += 1
            source = "\n".join(line.strip() for line in lines[start : place + 1]).removeprefix("$ ")
            with contextlib.suppress(ShellError):
                found += [replace(each, line=first + start) for each in launches(source) if each.keys]
        place += 1
    return found


def _run(command: str, holes: Holes, line: int) -> list[Launch]:
    """A text that is a command, or only its flags, as settings."""
    try:
        found = [each for each in launches(command, holes) if each.keys and each.program]
    except ShellError:
        found = []
    flags = keys_of(command.split(), holes)
    return found or ([Launch(flags, line, "")] if flags else [])


def _reason(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error).partition(" (")[0]
