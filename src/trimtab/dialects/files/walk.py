"""The commands a script would start, with their words filled in as far as the script says; nothing is started."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from trimtab.dialects.files.arithmetic import total
from trimtab.dialects.files.expansion import Scope, held, text, words
from trimtab.dialects.files.grammar import (
    Assignment,
    Case,
    Command,
    Function,
    Group,
    If,
    Loop,
    Script,
    Simple,
    Step,
    Substitution,
    Test,
    Text,
)
from trimtab.dialects.files.shell_script import script
from trimtab.dialects.files.shell_simple import DECLARING
from trimtab.dialects.files.shell_words import ShellError
from trimtab.dialects.files.truth import truth
from trimtab.dialects.files.unknown import HOLE, Holes, without_marks
from trimtab.dialects.files.ways import BRANCHES, REPEATED, merge

LONGEST = 300_000
MOST_STEPS = 20_000
MOST_CALLS = 20
"""Times that one function is walked through."""
DEEPEST = 200
"""Levels of blocks, functions counted as 20 and texts run as scripts as 10; what lies deeper is not walked."""
MOST_WORDS = 300_000
"""Words handled, copies of variables and long texts counted with them."""
SHELLS = {"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash"}
FED = {*SHELLS, "sbatch", "srun", "ssh", "docker", "apptainer", "singularity", "salloc", "kubectl"}
"""Commands whose here-document is a script."""


OUTCOMES = {
    **dict.fromkeys(("true", ":", "set", "shopt", "cd", "echo", "printf", "mkdir", "ulimit", "sleep"), True),
    "false": False,
}
"""Commands that say nothing here, and whether they succeed."""


@dataclass(frozen=True)
class Started:
    """A command that the script would start."""

    words: tuple[str, ...]
    line: int
    cut: int = 0
    """The line of a comment that ends it early for the shell."""
    values: dict[str, str] = field(default_factory=dict[str, str])
    """Variables set for it alone."""


@dataclass
class Walk:
    """What was found on the way through a script."""

    holes: Holes
    started: list[Started] = field(default_factory=list[Started])
    functions: dict[str, Script] = field(default_factory=dict[str, Script])
    called: dict[str, int] = field(default_factory=dict[str, int])
    arrays: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Every array as last set, for files that only set some."""
    sourced: list[str] = field(default_factory=list[str])
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


def commands(source: str, holes: Holes) -> Walk:
    """Every command of a script, in the order in which they stand."""
    if len(source) > LONGEST:
        raise ShellError(f"more than {LONGEST} characters, which no launch script has")
    walk = Walk(holes)
    scope = Scope(holes)
    scope.printed = lambda piece, at: _printed(piece, at, walk)
    _go(script(without_marks(source)), scope, walk)
    for name in [each for each in walk.functions if each not in walk.called]:
        _call(name, [], scope, walk)
    return walk


def _go(body: Script, scope: Scope, walk: Walk) -> bool | None:
    """Walk through commands; whether the last would succeed, where that is known."""
    result: bool | None = True
    for step in body.steps:
        walk.steps += 1
        if walk.steps > MOST_STEPS or walk.count > MOST_WORDS:
            raise ShellError(f"more than {MOST_STEPS} steps; a function or a text that repeats itself")
        chained = step.joint in ("&&", "||")
        result = _joined(step, result, scope, walk) if chained else _command(step.command, scope, walk)
        result = result if result is None or not step.negated else not result
    return result


def _joined(step: Step, before: bool | None, scope: Scope, walk: Walk) -> bool | None:
    """`a && b`, `a || b`: b is read unless a is known to prevent it; what it changes is unknown where a is."""
    runs = None if before is None else before == (step.joint == "&&")
    if runs is False:
        return before
    if runs:
        return _command(step.command, scope, walk)
    apart = walk.apart(scope)
    _command(step.command, apart, walk)
    if not _leaves(step.command):
        merge(scope, [walk.apart(scope), apart], step.command.line, BRANCHES)
    return None


def _leaves(command: Command) -> bool:
    """Whether a command ends the script, so that what holds after it is what held before."""
    steps = command.body.steps if isinstance(command, Group) else (Step(";", command),)
    last = steps[-1].command if steps else None
    if not isinstance(last, Simple) or not last.words:
        return False
    first = "".join(piece.text for piece in last.words[0] if isinstance(piece, Text))
    return first in ("exit", "return", "continue", "break")


def _command(command: Command, scope: Scope, walk: Walk) -> bool | None:
    rows: dict[type, Callable[..., bool | None]] = {
        Simple: _simple,
        If: _if,
        Case: _case,
        Loop: _loop,
        Group: _group,
        Function: _function,
        Test: _test,
    }
    walk.depth += 1
    found = rows[type(command)](command, scope, walk) if walk.depth <= DEEPEST else None
    walk.depth -= 1
    return found


# ── simple commands ────────────────────────────────────────────────────────────────────────────────────────────────────


def _simple(command: Simple, scope: Scope, walk: Walk) -> bool | None:
    found = walk.charge([each for word in command.words for each in words(word, scope)])
    if not found or found[0] in DECLARING:
        for each in command.assignments:
            _assign(each, scope, walk)
        return True
    inner = walk.apart(scope) if command.assignments else scope
    for each in command.assignments:
        _assign(each, inner, walk)
    own = {each.name: inner.text(each.name) or "" for each in command.assignments}
    return _started(Started(tuple(found), command.line, command.cut, own), command, scope, walk)


def _assign(each: Assignment, scope: Scope, walk: Walk) -> None:
    if each.is_array:
        assert isinstance(each.value, tuple)
        found = walk.charge([one for word in each.value for one in words(word, scope)])  # pyright: ignore[reportArgumentType]
        before = scope.values.get(each.name, []) if each.appends else []
        whole = [*([before] if isinstance(before, str) else before), *found]
        scope.values[each.name] = whole
        walk.arrays[each.name] = tuple(whole)
        return
    value, before = text(each.value, scope), scope.values.get(each.name)  # pyright: ignore[reportArgumentType]
    if each.index is not None:
        place, whole = text(each.index, scope), [before] if isinstance(before, str) else list(before or [])
        if place.isdigit() and len(place) < 6 and int(place) <= len(whole):
            scope.values[each.name] = [*whole[: int(place)], value, *whole[int(place) + 1 :]]
    elif not each.appends:
        scope.values[each.name] = value
    elif isinstance(before, list):
        scope.values[each.name] = [held(f"{before[0] if before else ''}{value}", scope), *before[1:]]
    else:
        start = scope.holes.hole(f"${each.name}", None) if before is None else before
        scope.values[each.name] = held(start + value, scope)


def _started(found: Started, command: Simple, scope: Scope, walk: Walk) -> bool | None:
    name = found.words[0]
    if name in walk.functions:
        return _call(name, list(found.words[1:]), scope, walk)
    if name in ("[", "test"):
        return truth(list(found.words[1 : -1 if name == "[" else None]))
    if name in OUTCOMES:
        return OUTCOMES[name]
    if name in ("unset", "shift", "source", ".", "read"):
        _changes(found, command, scope, walk)
        return None
    for source in dict.fromkeys(_scripts(found, command, scope)):
        _inside(source, found.line, scope, walk)
    walk.started.append(found)
    return None


def _changes(found: Started, command: Simple, scope: Scope, walk: Walk) -> None:
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
            scope.values[each] = text(command.inputs[0], scope) if known else scope.holes.hole(f"${each}", found.line)
    else:
        walk.sourced.append(" ".join(rest[:1]))


def _scripts(found: Started, command: Simple, scope: Scope) -> Iterable[str]:
    """Texts that the command would itself run as scripts: of `eval`, `bash -c`, and here-documents."""
    if found.words[0] == "eval":
        yield " ".join(found.words[1:])
    for place, word in enumerate(found.words[:-1]):
        is_shell = place and found.words[place - 1].rpartition("/")[2] in SHELLS
        if (word == "-c" or (word.startswith("-") and word.endswith("c") and len(word) <= 4)) and is_shell:
            yield found.words[place + 1]
    if found.words[0] in ("ssh", "sbatch", "srun", "tmux", "screen") and " " in found.words[-1]:
        yield found.words[-1].removeprefix("--wrap=")
    to_script = any(text(each, scope).endswith((".sh", ".sbatch", ".slurm")) for each in command.outputs)
    if command.inputs and (
        any(word in FED for word in found.words) or (found.words[0] in ("cat", "tee") and to_script)
    ):
        yield from (text(each, scope) for each in command.inputs)


def _inside(source: str, line: int, scope: Scope, walk: Walk) -> None:
    walk.depth += 10
    before = len(walk.started)
    if walk.depth < DEEPEST:
        try:
            _go(script(source), walk.apart(scope), walk)
        except ShellError:
            if walk.steps > MOST_STEPS or walk.count > MOST_WORDS:
                raise
    walk.started[before:] = [replace(each, line=line) for each in walk.started[before:]]
    walk.depth -= 10


def _call(name: str, arguments: list[str], scope: Scope, walk: Walk) -> bool | None:
    walk.called[name] = walk.called.get(name, 0) + 1
    walk.depth += 20
    if walk.depth > DEEPEST or walk.called[name] > MOST_CALLS:
        walk.depth -= 20
        return None
    before, scope.arguments = scope.arguments, arguments
    result = _go(walk.functions[name], scope, walk)
    scope.arguments = before
    walk.depth -= 20
    return result


def _printed(piece: Substitution, scope: Scope, walk: Walk) -> str | None:
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
        return text(command.inputs[0], scope)
    return None


# ── branches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _if(command: If, scope: Scope, walk: Walk) -> bool | None:
    ways: list[Scope] = []
    complete = False
    for condition, body in command.arms:
        known = True if condition is None else _go(condition, scope, walk)
        if known is False:
            continue
        apart = walk.apart(scope) if ways or known is None else scope
        _go(body, apart, walk)
        if not (known is None and body.steps and _leaves(body.steps[-1].command)):
            ways.append(apart)
        if known:
            complete = True
            break
    if ways and ways != [scope]:
        merge(scope, ways if complete else [*ways, walk.apart(scope)], command.line, BRANCHES)
    return None


def _case(command: Case, scope: Scope, walk: Walk) -> bool | None:
    subject = text(command.subject, scope)
    unknown = bool(HOLE.search(subject))
    ways: list[Scope] = []
    for patterns, body in command.arms:
        named = [text(each, scope) for each in patterns]
        if not unknown and not any(fnmatch.fnmatchcase(subject, each) for each in named):
            continue
        if not unknown:
            _go(body, scope, walk)
            return None
        apart = walk.apart(scope)
        _go(body, apart, walk)
        if not (body.steps and _leaves(body.steps[-1].command)):
            ways.append(apart)
    if ways:
        named_all = any(text(each, scope) == "*" for patterns, _ in command.arms for each in patterns)
        merge(scope, ways if named_all else [*ways, walk.apart(scope)], command.line, BRANCHES)
    return None


def _loop(command: Loop, scope: Scope, walk: Walk) -> bool | None:
    if command.condition is not None:
        known = _go(command.condition, scope, walk)
        if known is command.until:
            return None
    values = [each for word in command.words or () for each in words(word, scope)]
    if command.words is not None and not values:
        return None
    apart = walk.apart(scope)
    if command.name:
        once = len(values) == 1
        apart.values[command.name] = values[0] if once else scope.holes.hole(f"${command.name}", command.line, REPEATED)
    _go(command.body, apart, walk)
    if len(values) == 1:
        scope.values.update(apart.values)
    else:
        merge(scope, [walk.apart(scope), apart], command.line, REPEATED)
    return None


def _group(command: Group, scope: Scope, walk: Walk) -> bool | None:
    return _go(command.body, walk.apart(scope) if command.is_subshell else scope, walk)


def _function(command: Function, scope: Scope, walk: Walk) -> bool | None:
    del scope
    walk.functions[command.name] = command.body
    return True


def _test(command: Test, scope: Scope, walk: Walk) -> bool | None:
    del walk
    if command.is_arithmetic:
        inner = text(command.words[0], scope)
        found = None if HOLE.search(inner) else total(inner, scope.text)
        return None if found is None else bool(found)
    return truth([text(each, scope) for each in command.words])
