"""The way through a Python script: branches apart and together again, functions where they are called.

    block ── if, match, try, loop ──► a layer for each way ──► merge: what they agree on stays, the rest is unknown
       └──── call of a function of the script ──► its body with its arguments ──► what it returns

A function that nothing is seen to call is walked last, with arguments that are not known.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab.dialects.sources.python_calls import CONFIGS, PythonFunction, PythonScript, bind, stored, take
from trimtab.dialects.sources.python_flow import GONE, REPEATED, Flow, Layer, is_command
from trimtab.dialects.sources.python_values import REST, Parsed, dotted_name, test_of, value_of
from trimtab.dialects.sources.unknown import Holes, Unknown

DEEPEST = 12
"""Functions inside one another."""
CALL = 20
"""What following a call counts for, in values to work out."""
FUNCTIONS = "which functions of the script set differently"
EXITS = {"exit", "quit", "sys.exit", "os._exit", "os.abort"}


@dataclass
class _Frame:
    """Where a function, a loop or a `try` began, and the ways that leave it half-way."""

    depth: int
    left: list[Layer] = field(default_factory=list[Layer])


@dataclass
class PythonWalk(PythonScript):
    """A script with its functions and the places that a way may leave to."""

    frames: list[_Frame] = field(default_factory=list[_Frame])
    loops: list[_Frame] = field(default_factory=list[_Frame])
    tries: list[_Frame] = field(default_factory=list[_Frame])
    functions: list[PythonFunction] = field(default_factory=list[PythonFunction])
    called: set[int] = field(default_factory=set[int])
    """The functions that were walked through, by the identity of their nodes."""
    stack: list[int] = field(default_factory=list[int])
    """Those being walked through, the outermost first."""
    class_scopes: set[int] = field(default_factory=set[int])


def walk(module: ast.Module, holes: Holes, *, by_defaults: bool) -> PythonWalk:
    """Everything that a script says, with the functions that nothing calls at its end.

    `by_defaults`: what tests of its parser's arguments come to without any; else both ways are walked.
    """
    flow = Flow(holes, by_defaults=by_defaults)
    script = PythonWalk(flow, call_result)
    flow.bind("__name__", "__main__")
    with _frame(script.frames, flow.depth):
        block(module.body, script)
    named = {
        each.func.id for each in ast.walk(module) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
    }
    for is_root in (True, False):
        done = 0
        while done < len(script.functions):
            function = script.functions[done]
            done += 1
            if id(function.node) not in script.called and not (is_root and function.node.name in named):
                _walk_uncalled(function, script)
    return script


@contextmanager
def _frame(frames: list[_Frame], depth: int) -> Generator[_Frame]:
    frame = _Frame(depth)
    frames.append(frame)
    try:
        yield frame
    finally:
        frames.pop()


def block(body: Iterable[ast.stmt], script: PythonWalk) -> bool:
    """PythonWalk through statements; whether what stands behind them is reached."""
    for node in body:
        script.flow.work.charge()
        rule = RULES.get(type(node))
        if rule is not None:
            if not rule(node, script):
                return False
            continue
        take(node, script)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and dotted_name(node.value.func) in EXITS:
            return False
    return True


# ── branches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _way(body: Iterable[ast.stmt], script: PythonWalk, ways: list[Layer]) -> None:
    """One more way, unless it leaves."""
    with script.flow.apart() as layer:
        if block(body, script):
            ways.append(layer)


def _meet(ways: list[Layer], line: int, script: PythonWalk) -> bool:
    if ways:
        script.flow.merge(ways, line)
    return bool(ways)


def _if(node: ast.If, script: PythonWalk) -> bool:
    ways: list[Layer] = []
    line = node.lineno
    while True:
        take(node, script)
        known = test_of(node.test, script.flow, node.lineno)
        if known is not False:
            _way(node.body, script, ways)
        if known is True:
            break
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            node = node.orelse[0]
            continue
        _way(node.orelse, script, ways)
        break
    return _meet(ways, line, script)


def _match(node: ast.Match, script: PythonWalk) -> bool:
    take(node, script)
    subject = value_of(node.subject, script.flow, node.lineno)
    ways: list[Layer] = []
    for case in node.cases:
        known = _matches(case.pattern, subject, node, script)
        holds = known if case.guard is None else None if known is not False else False
        if holds is False:
            continue
        with script.flow.apart() as layer:
            for name in _captured(case.pattern):
                script.flow.bind(name, Unknown(name, node.lineno))
            if block(case.body, script):
                ways.append(layer)
        if holds is True:
            return _meet(ways, node.lineno, script)
    return _meet([*ways, {}], node.lineno, script)


def _captured(pattern: ast.pattern) -> list[str]:
    names = [getattr(each, "name", None) or getattr(each, "rest", None) for each in ast.walk(pattern)]
    return [name for name in names if isinstance(name, str)]


def _matches(pattern: ast.pattern, subject: Any, node: ast.Match, script: PythonWalk) -> bool | None:
    """Whether a subject has this form, where that is known."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return True
    if isinstance(pattern, ast.MatchOr):
        found = [_matches(each, subject, node, script) for each in pattern.patterns]
        return True if True in found else None if None in found else False
    if isinstance(pattern, ast.MatchSingleton):
        return None if isinstance(subject, Unknown) else subject is pattern.value
    if isinstance(pattern, ast.MatchValue):
        value = value_of(pattern.value, script.flow, node.lineno)
        known = not isinstance(value, Unknown) and isinstance(subject, str | int | float)
        return bool(subject == value) if known else None
    return None


def _try(node: Any, script: PythonWalk) -> bool:
    flow = script.flow
    before: list[Layer] = [{}]
    ways: list[Layer] = []
    with _frame(script.tries, flow.depth) as frame, flow.apart() as body:
        reached = block(node.body, script)
    if reached:
        before.append(body)
        with flow.apart() as layer:
            flow.merge([body], node.lineno)
            if block(node.orelse, script):
                ways.append(layer)
    before += frame.left
    for handler in node.handlers:
        with flow.apart() as layer:
            flow.merge(before, node.lineno)
            if handler.name:
                flow.bind(handler.name, Unknown(handler.name, handler.lineno))
            if block(handler.body, script):
                ways.append(layer)
    if not node.handlers and not reached:
        ways = []
    met = _meet(ways, node.lineno, script)
    return block(node.finalbody, script) and met


def _with(node: Any, script: PythonWalk) -> bool:
    take(node, script)
    for item in node.items:
        if item.optional_vars is not None:
            for name in stored(item.optional_vars):
                script.flow.bind(name, Unknown(name, node.lineno))
    if not any(dotted_name(item.context_expr).endswith("suppress") for item in node.items):
        return block(node.body, script)
    ways: list[Layer] = [{}]
    _way(node.body, script, ways)
    return _meet(ways, node.lineno, script)


def _loop(node: Any, script: PythonWalk) -> bool:
    """A loop: once where it says so, else none, one or many times."""
    flow = script.flow
    take(node, script)
    values, known = None, None
    if isinstance(node, ast.While):
        known = test_of(node.test, flow, node.lineno)
    else:
        held = value_of(node.iter, flow, node.lineno)
        values = held if isinstance(held, list) and not _has_gap(cast("list[Any]", held)) else None
        known = None if values is None else bool(values)
    if known is False:
        return block(node.orelse, script)
    once = values is not None and len(values) == 1
    with _frame(script.loops, flow.depth) as frame, flow.apart() as layer:
        if not once:
            _widen(node, script)
        if not isinstance(node, ast.While):
            line = node.lineno
            bind(
                node.target, values[0] if once and values else Unknown(dotted_name(node.target), line, REPEATED), script
            )
        if block(node.body, script):
            frame.left.append(layer)
    ways = frame.left if known else [*frame.left, {}]
    if not ways:
        return False
    flow.merge(ways, node.lineno, REPEATED)
    return block(node.orelse, script)


def _has_gap(values: list[Any]) -> bool:
    return any(isinstance(each, Unknown) and each.several for each in values)


def _widen(node: Any, script: PythonWalk) -> None:
    """Names that a loop binds anew are not known when it begins once more; texts and lists that grow are, as far as they go."""
    flow = script.flow
    for name in dict.fromkeys(stored(*node.body)):
        flow.work.charge()
        value = flow.name(name)
        grows = isinstance(value, list) or (isinstance(value, str) and is_command(value))
        if value is not GONE and not grows and not isinstance(value, Unknown):
            flow.bind(name, Unknown(name, node.lineno, REPEATED))


# ── statements that leave ──────────────────────────────────────────────────────────────────────────────────────────────


def _return(node: ast.Return, script: PythonWalk) -> bool:
    take(node, script)
    if script.frames:
        frame = script.frames[-1]
        value = None if node.value is None else value_of(node.value, script.flow, node.lineno)
        frame.left.append(script.flow.since(frame.depth) | {RESULT: value})
    return False


RESULT = ("name", -1, "what a function returns")


def _leave(node: ast.stmt, script: PythonWalk) -> bool:
    """`break` and `continue`: what holds there may hold behind the loop."""
    del node
    if script.loops:
        script.loops[-1].left.append(script.flow.since(script.loops[-1].depth))
    return False


def _raise(node: ast.stmt, script: PythonWalk) -> bool:
    take(node, script)
    if script.tries:
        script.tries[-1].left.append(script.flow.since(script.tries[-1].depth))
    return False


# ── definitions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _define(node: Any, script: PythonWalk) -> bool:
    take(node, script)
    scopes = tuple(each for each in script.flow.scopes if each not in script.class_scopes)  # methods do not see them
    is_generator = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))
    function = PythonFunction(f"{node.name}()", node.lineno, node=node, scopes=scopes, is_generator=is_generator)
    script.functions.append(function)
    script.flow.bind(node.name, function)
    return True


def _class(node: ast.ClassDef, script: PythonWalk) -> bool:
    """A class: its fields where it is settings; its methods as functions that nothing is seen to call."""
    flow = script.flow
    take(node, script)
    flow.bind(node.name, Unknown(node.name, node.lineno))
    if _is_settings(node):
        for key, value in _fields(node, script).items():
            flow["parsed", key] = value
            if flow["default", key] is GONE:
                flow["default", key] = value
        script.classes.add(node.name)
    before = flow.scopes
    flow.scopes = (flow.number(), *before)
    script.class_scopes.add(flow.scopes[0])
    block(node.body, script)
    flow.scopes = before
    return True


def _is_settings(node: ast.ClassDef) -> bool:
    made = [dotted_name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list]
    bases = [dotted_name(each) for each in node.bases]
    return any("dataclass" in each or each.startswith("chz") for each in made) and bool(
        CONFIGS.search(node.name) or any(CONFIGS.search(each) for each in bases)
    )


def _fields(node: ast.ClassDef, script: PythonWalk) -> dict[str, Any]:
    """Fields with their defaults, also where `field(default=…)` says them."""
    found: dict[str, Any] = {}
    for each in node.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name) or each.value is None:
            continue
        value = each.value
        if isinstance(value, ast.Call) and dotted_name(value.func).endswith(("field", "Field")):
            value = next((word.value for word in value.keywords if word.arg == "default"), None)
        if value is not None:
            found[each.target.id] = value_of(value, script.flow, each.lineno)
    return found


def _import(node: Any, script: PythonWalk) -> bool:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        script.flow.bind(name, Unknown(name, node.lineno))
    return True


def _global(node: ast.Global, script: PythonWalk) -> bool:
    for name in node.names:
        script.flow["global", script.flow.scopes[0], name] = True
    return True


def _delete(node: ast.Delete, script: PythonWalk) -> bool:
    for name in (each.id for each in node.targets if isinstance(each, ast.Name)):
        script.flow.bind(name, Unknown(name, node.lineno, "which the script deletes"))
    return True


# ── functions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def call_result(call: ast.Call, function: PythonFunction, script: PythonScript) -> Any:
    """What a call comes to: the body of the function with what it is given."""
    assert isinstance(script, PythonWalk)
    script.called.add(id(function.node))
    script.flow.work.charge(CALL)
    given = _arguments(call, function, script)
    found = _body(function, given, script)
    return Unknown(function.name, call.lineno) if function.is_generator or found is GONE else found


def _body(function: PythonFunction, given: dict[str, Any], script: PythonWalk) -> Any:
    """PythonWalk through a body; what it returns, GONE where it is inside itself or never ends."""
    flow, node = script.flow, function.node
    if id(node) in script.stack or len(script.stack) >= DEEPEST:
        return GONE
    scopes, loops, tries = flow.scopes, script.loops, script.tries
    script.stack.append(id(node))
    script.loops, script.tries = [], []
    flow.scopes = (flow.number(), *function.scopes)
    with _frame(script.frames, flow.depth) as frame, flow.apart() as layer:
        for name, value in given.items():
            flow.bind(name, value)
        if block(node.body, script):
            layer[RESULT] = None
            frame.left.append(layer)
    flow.scopes, script.loops, script.tries = scopes, loops, tries
    script.stack.pop()
    if frame.left:
        flow.merge(frame.left, node.lineno)
    found = flow[RESULT] if frame.left else GONE
    return (
        Unknown(function.name, found.line, found.why) if type(found) is Unknown and found.name == RESULT[-1] else found
    )


def _arguments(call: ast.Call, function: PythonFunction, script: PythonWalk) -> dict[str, Any]:
    """What every parameter is given, by place, by name, or by its default."""
    flow, given = script.flow, function.node.args
    places = [each.arg for each in (*given.posonlyargs, *given.args)]
    named = [*places, *(each.arg for each in given.kwonlyargs)]
    found: dict[str, Any] = {}
    rest: dict[Any, Any] = {}
    is_open = any(isinstance(each, ast.Starred) for each in call.args)
    for name, each in zip(places, [] if is_open else call.args, strict=False):
        found[name] = value_of(each, flow, call.lineno)
    for word in call.keywords:
        value = value_of(word.value, flow, call.lineno)
        pairs = {word.arg: value} if word.arg is not None else value if isinstance(value, dict) else {REST: value}
        is_open = is_open or REST in pairs
        for key, inner in cast("dict[Any, Any]", pairs).items():
            (found if key in named else rest)[key] = inner
    unknown = {name: Unknown(name, function.line) for name in named}
    found = {**unknown, **({} if is_open else _by_default(given, script)), **found}
    if given.kwarg is not None:
        found[given.kwarg.arg] = rest
    if given.vararg is not None:
        found[given.vararg.arg] = Unknown(given.vararg.arg, function.line)
    return found


def _by_default(given: ast.arguments, script: PythonWalk) -> dict[str, Any]:
    """Parameters with a default."""
    places = [*given.posonlyargs, *given.args]
    pairs = [*zip(places[len(places) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [
        (name, value) for name, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None
    ]
    return {name.arg: value_of(value, script.flow, name.lineno) for name, value in pairs}


def _walk_uncalled(function: PythonFunction, script: PythonWalk) -> None:
    """A function that nothing is seen to call: what it sets besides others is kept, what it sets differently is unknown."""
    flow, given = script.flow, function.node.args
    script.called.add(id(function.node))
    parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    parameters += [each for each in (given.vararg, given.kwarg) if each is not None]
    with flow.apart() as layer:
        _body(function, {each.arg: _unseen(each, script) for each in parameters}, script)
    for slot, value in layer.items():
        held = flow[slot]
        if slot[0] in ("key", "default", "parsed") and held is not GONE and not flow.work.same(held, value):
            layer[slot] = Unknown(slot[1], function.line, FUNCTIONS)
    changed = {slot: value for slot, value in layer.items() if slot[0] == "config" and flow[slot] is not GONE}
    flow.merge([{slot: value for slot, value in layer.items() if slot not in changed}], function.line or 1)
    if changed:
        flow.merge([{}, changed], function.line or 1, FUNCTIONS)


def _unseen(each: ast.arg, script: PythonWalk) -> Any:
    """An argument that nobody is seen to give: settings of the script's own class, or its parsed arguments by their name, else unknown."""
    flow = script.flow
    if each.annotation is not None and _annotated(each.annotation) in script.classes:
        return Parsed(each.arg, each.lineno)
    held = flow.name(each.arg)
    return held if isinstance(held, Parsed) else Unknown(each.arg, each.lineno)


def _annotated(node: ast.expr) -> str:
    """The class an annotation names, also where it stands in quotes."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else dotted_name(node)


RULES: dict[type, Any] = {
    ast.If: _if,
    ast.Match: _match,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.For: _loop,
    ast.AsyncFor: _loop,
    ast.While: _loop,
    ast.Return: _return,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.Raise: _raise,
    ast.FunctionDef: _define,
    ast.AsyncFunctionDef: _define,
    ast.ClassDef: _class,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Global: _global,
    ast.Delete: _delete,
}
