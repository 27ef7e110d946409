"""The commands a script would start, with their words filled in as far as the script says; nothing is started."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trimtab.dialects.sources.conditions import evaluate, truth
from trimtab.dialects.sources.effects import (
    BRANCHES,
    DEEPEST,
    MOST_CALLS,
    MOST_STEPS,
    MOST_WORDS,
    REPEATED,
    Started,
    Walk,
    assign,
    change_script,
    merge,
    output_of,
    scripts_in,
    written_scripts,
)
from trimtab.dialects.sources.expansion import Scope, expand_to_text, words
from trimtab.dialects.sources.grammar import (
    Command,
    CommandGroup,
    Function,
    If,
    Loop,
    Script,
    ShellError,
    Simple,
    Step,
    Test,
    Text,
)
from trimtab.dialects.sources.shell_script import script
from trimtab.dialects.sources.shell_simple import DECLARING
from trimtab.dialects.sources.unknown import HOLE, Holes

LONGEST = 300_000
OUTCOMES = {
    **dict.fromkeys(("true", ":", "set", "shopt", "cd", "echo", "printf", "mkdir", "ulimit", "sleep"), True),
    "false": False,
}
"""Commands that say nothing here, and whether they succeed."""


def walk_script(source: str, holes: Holes) -> Walk:
    """Every command of a script, in the order in which they stand."""
    if len(source) > LONGEST:
        raise ShellError(f"more than {LONGEST} characters, which no launch script has")
    walk = Walk(holes)
    scope = Scope(holes)
    scope.printed = lambda piece, at: output_of(piece, at, walk)
    _go(script(source), scope, walk)
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
        result = _join(step, result, scope, walk) if chained else _command(step.command, scope, walk)
        result = result if result is None or not step.negated else not result
    return result


def _join(step: Step, before: bool | None, scope: Scope, walk: Walk) -> bool | None:
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
    steps = command.body.steps if isinstance(command, CommandGroup) else (Step(";", command),)
    last = steps[-1].command if steps else None
    if not isinstance(last, Simple) or not last.words:
        return False
    first = "".join(piece.text for piece in last.words[0] if isinstance(piece, Text))
    return first in ("exit", "return", "continue", "break")


def _command(command: Command, scope: Scope, walk: Walk) -> bool | None:
    rows: dict[type, Callable[..., bool | None]] = {
        Simple: _simple,
        If: _if,
        Loop: _loop,
        CommandGroup: _group,
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
            assign(each, command.line, scope, walk)
        if found[:1] == ["export"]:
            names = [*(each.name for each in command.assignments), *found[1:]]
            walk.exported |= {name: scope.text(name) or "" for name in names if name.isidentifier()}
        return True
    inner = walk.apart(scope) if command.assignments else scope
    for each in command.assignments:
        assign(each, command.line, inner, walk)
    own = {each.name: inner.text(each.name) or "" for each in command.assignments}
    return _start(Started(tuple(found), command.line, command.cut, own), command, scope, walk)


def _start(found: Started, command: Simple, scope: Scope, walk: Walk) -> bool | None:
    name = found.words[0]
    if name in walk.functions:
        return _call(name, list(found.words[1:]), scope, walk)
    if name in ("[", "test"):
        return truth(list(found.words[1 : -1 if name == "[" else None]))
    if name in OUTCOMES:
        for source in written_scripts(found, command, scope):
            _inside(source, found.line, scope, walk)
        return OUTCOMES[name]
    if name in ("unset", "shift", "source", ".", "read"):
        change_script(found, command, scope)
        return None
    for source in dict.fromkeys(scripts_in(found, command, scope)):
        _inside(source, found.line, scope, walk)
    walk.started.append(found)
    return None


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


def _group(command: CommandGroup, scope: Scope, walk: Walk) -> bool | None:
    return _go(command.body, walk.apart(scope) if command.is_subshell else scope, walk)


def _function(command: Function, scope: Scope, walk: Walk) -> bool | None:
    del scope
    walk.functions[command.name] = command.body
    return True


def _test(command: Test, scope: Scope, walk: Walk) -> bool | None:
    del walk
    if command.is_arithmetic:
        inner = expand_to_text(command.words[0], scope)
        found = None if HOLE.search(inner) else evaluate(inner, scope.text)
        return None if found is None else bool(found)
    return truth([expand_to_text(each, scope) for each in command.words])
