"""What one command leaves behind or prints, and the scripts it would itself run."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trimtab.dialects.files.expansion import Scope, expand_to_text, or_hole, words
from trimtab.dialects.files.grammar import (
    Assignment,
    Simple,
    Substitution,
)
from trimtab.dialects.files.started import Started, Walk
from trimtab.dialects.files.unknown import HOLE

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


def change_script(found: Started, command: Simple, scope: Scope, walk: Walk) -> None:
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
    else:
        walk.sourced.append(" ".join(rest[:1]))


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
    return any(expand_to_text(each, scope).endswith((".sh", ".sbatch", ".slurm")) for each in command.outputs)


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
