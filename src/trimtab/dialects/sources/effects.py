"""What one command leaves behind or prints, and the scripts it would itself run."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from trimtab.dialects.sources.expansion import Scope, expand_to_text, or_hole, words
from trimtab.dialects.sources.formats import SHELL
from trimtab.dialects.sources.grammar import Assignment, Script, ShellError, Simple, Substitution
from trimtab.dialects.sources.unknown import HOLE, Holes

SHELLS = {"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash"}
FED = {*SHELLS, "sbatch", "srun", "ssh", "docker", "apptainer", "singularity", "salloc", "kubectl"}
"""Commands whose here-document is a script."""
SUBMITS = {"sbatch", "srun", "salloc", "qsub", "bsub"}
"""Commands that hand their variables on to a job, which may run one of them."""
COMMANDS = re.compile(r".*(command|cmd|launch|entry_?point|script|run)s?", re.IGNORECASE)
"""What a variable is called that holds a command for somebody else."""
PYTHON = re.compile(r"(?:^|[\s/])(?:python[\d.]*|uv\s+run|torchrun|accelerate\s+launch|deepspeed)\s")


def assign(each: Assignment, line: int, scope: Scope, walk: Walk) -> None:
    """A variable, an element or an array set, or added to."""
    if each.is_array:
        assert isinstance(each.value, tuple)
        found = walk.charge([one for word in each.value for one in words(word, scope)])  # pyright: ignore[reportArgumentType]
        before = scope.values.get(each.name, []) if each.appends else []
        whole = [*([before] if isinstance(before, str) else before), *found]
        scope.values[each.name] = whole
        walk.arrays[each.name] = Started(tuple(whole), line)
        return
    value, before = expand_to_text(each.value, scope), scope.values.get(each.name)  # pyright: ignore[reportArgumentType]
    if each.index is not None:
        place, whole = expand_to_text(each.index, scope), [before] if isinstance(before, str) else list(before or [])
        if place.isdigit() and len(place) < 6 and int(place) <= len(whole):
            scope.values[each.name] = [*whole[: int(place)], value, *whole[int(place) + 1 :]]
    elif not each.appends:
        scope.values[each.name] = value
    elif isinstance(before, list):
        scope.values[each.name] = [or_hole(f"{before[0] if before else ''}{value}", scope), *before[1:]]
    else:
        start = scope.holes.hole(f"${each.name}", None) if before is None else before
        scope.values[each.name] = or_hole(start + value, scope)


def change_script(found: Started, command: Simple, scope: Scope) -> None:
    """What commands that act on the script itself leave behind."""
    name, rest = found.words[0], found.words[1:]
    if name == "unset":
        for each in rest:
            scope.values.pop(each, None)
    elif name == "shift":
        count = rest[0] if rest else "1"
        scope.arguments = (scope.arguments or [])[int(count) if count.isdigit() and len(count) < 6 else 0 :]
    elif name == "read":
        for each in [one for one in rest if one.isidentifier()][-1:]:
            known = command.inputs and not HOLE.search(each)
            scope.values[each] = (
                expand_to_text(command.inputs[0], scope) if known else scope.holes.hole(f"${each}", found.line)
            )


def scripts_in(found: Started, command: Simple, scope: Scope) -> Iterable[str]:
    """Texts that the command would itself run as scripts: of `eval`, `bash -c`, and here-documents."""
    if found.words[0] == "eval":
        yield " ".join(found.words[1:])
    for place, word in enumerate(found.words[:-1]):
        is_shell = place and found.words[place - 1].rpartition("/")[2] in SHELLS
        if (word == "-c" or (word.startswith("-") and word.endswith("c") and len(word) <= 4)) and is_shell:
            yield found.words[place + 1]
    if found.words[0] in ("ssh", "sbatch", "srun", "tmux", "screen") and " " in found.words[-1]:
        yield found.words[-1].removeprefix("--wrap=")
    to_script = found.words[0] in ("cat", "tee") and _writes_script(command, scope)
    if command.inputs and (to_script or any(word in FED for word in found.words)):
        yield from (expand_to_text(each, scope) for each in command.inputs)
    if found.words[0].rpartition("/")[2] in SUBMITS:
        yield from _handed_on(found, scope)


def _writes_script(command: Simple, scope: Scope) -> bool:
    return any(expand_to_text(each, scope).endswith(SHELL.endings) for each in command.outputs)


def written_scripts(found: Started, command: Simple, scope: Scope) -> Iterable[str]:
    """The text that `echo` or `printf` puts into a script: `echo "python train.py …" > job.sh`."""
    if found.words[0] in ("echo", "printf") and command.outputs and _writes_script(command, scope):
        text = " ".join(each for each in found.words[1:] if each not in ("-n", "-e", "-E"))
        yield text.replace("\\n", "\n") if found.words[0] == "printf" or "-e" in found.words else text


def _handed_on(found: Started, scope: Scope) -> Iterable[str]:
    """Commands in variables that a job is given: `COMMAND="uv run …" sbatch ray.sub`, or exported before."""
    told = {name: value for name, value in scope.values.items() if isinstance(value, str) and COMMANDS.fullmatch(name)}
    for value in {**told, **found.values}.values():
        if PYTHON.search(value) and not any(value in word for word in found.words):
            yield value


def output_of(piece: Substitution, scope: Scope, walk: Walk) -> str | None:
    """What `$(echo …)` and `$(cat <<END …)` print; None for all else."""
    steps = piece.body.steps
    if len(steps) != 1 or not isinstance(steps[0].command, Simple):
        return None
    command = steps[0].command
    found = walk.charge([each for word in command.words for each in words(word, scope)])
    if found[:1] == ["echo"] and not command.assignments:
        plain = [each for each in found[1:] if each not in ("-n", "-e", "-E")]
        return " ".join(plain)
    if found == ["cat"] and len(command.inputs) == 1:
        return expand_to_text(command.inputs[0], scope)
    return None


# ── what a command starts ─────────────────────────────────────────────────────────────────────────────────────────────
# What is found on the way through a script: commands, functions, arrays; counted, so that no script is walked without end.

MOST_STEPS = 20_000
MOST_CALLS = 20
"""Times that one function is walked through."""
DEEPEST = 200
"""Levels of blocks, functions counted as 20 and texts run as scripts as 10; what lies deeper is not walked."""
MOST_WORDS = 300_000
"""Words handled, copies of variables and long texts counted with them."""


@dataclass(frozen=True)
class Started:
    """A command that the script would start."""

    words: tuple[str, ...]
    line: int
    cut: int = 0
    """The line that ends it early for the shell."""
    values: dict[str, str] = field(default_factory=dict[str, str])
    """Variables set for it alone."""


@dataclass
class Walk:
    """What was found on the way through a script."""

    holes: Holes
    started: list[Started] = field(default_factory=list[Started])
    functions: dict[str, Script] = field(default_factory=dict[str, Script])
    called: dict[str, int] = field(default_factory=dict[str, int])
    arrays: dict[str, Started] = field(default_factory=dict[str, Started])
    """Every array as last set, for files that only set some, and for those that hold a command somebody else starts."""
    exported: dict[str, str] = field(default_factory=dict[str, str])
    """Variables that every command is given."""
    steps: int = 0
    count: int = 0
    depth: int = 0

    def charge(self, found: list[str]) -> list[str]:
        """The same words, counted; refused where a script makes too many."""
        self.count += len(found) + sum(map(len, found)) // 64
        if self.count > MOST_WORDS:
            raise ShellError("a text that repeats itself without end")
        return found

    def apart(self, scope: Scope) -> Scope:
        """A copy of the variables, counted."""
        self.charge(list(scope.values))
        return scope.copy()


# ── branches ──────────────────────────────────────────────────────────────────────────────────────────────────────────
# One set of variables for several ways through a script.

BRANCHES = "which branches of the script set differently"
REPEATED = "which a loop of the script changes"


def merge(scope: Scope, ways: list[Scope], line: int, why: str) -> None:
    """One scope for several ways through: what they agree on stays, what they set differently is unknown by name."""
    names = {name for way in ways for name in way.values}
    for name in names:
        first = ways[0].values.get(name)
        if all(way.values.get(name) == first for way in ways[1:]):
            if first is not None:
                scope.values[name] = first
            continue
        given = [way.values.get(name) for way in ways]
        if any(isinstance(each, list) for each in given):
            scope.values[name] = _common([each if isinstance(each, list) else [] for each in given], name, line, scope)
        else:
            scope.values[name] = scope.holes.hole(f"${name}", line, why)


def _common(lists: list[list[str]], name: str, line: int, scope: Scope) -> list[str]:
    """The words that several forms of an array begin with, and a hole for the rest."""
    shared: list[str] = []
    for each in zip(*lists, strict=False):
        if len(set(each)) > 1:
            break
        shared.append(each[0])
    rest = tuple(word for words in lists for word in words[len(shared) :])
    return [*shared, scope.holes.hole(f"${{{name}[@]}}", line, BRANCHES, several=True, maybe=rest)]
