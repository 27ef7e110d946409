"""The way through a Python script: branches apart and together again, functions where they are called.

    block ── if, match, try, loop ──► a state for each way ──► join: what they agree on stays, the rest is unknown
       └──── call of a function of the script ──► its body with its arguments ──► what it returns

A function that nothing is seen to call is walked last, with arguments that are not known.
"""

from __future__ import annotations

import ast
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, cast

from trimtab.dialects.sources.python_calls import CONFIGS, IN_PLACE, REST, PythonCall, change, set_field
from trimtab.dialects.sources.python_flow import GONE, REPEATED, Flow, Parsed, PythonFunction, State, is_command
from trimtab.dialects.sources.python_values import dotted_name, python_parameters, stored, test_of, value_of
from trimtab.dialects.sources.unknown import Holes, Unknown

DEEPEST = 12
"""Functions inside one another."""
CALL = 20
"""What following a call counts for, in values to work out."""
FUNCTIONS = "which functions of the script set differently"
EXITS = {"exit", "quit", "sys.exit", "os._exit", "os.abort", "SystemExit"}
RESULT = ("name", -1, "what a function returns")


def walk(module: ast.Module, holes: Holes, *, by_defaults: bool) -> Flow:
    """Everything that a script says, with the functions that nothing calls at its end.

    `by_defaults`: what tests of its parser's arguments come to without any; else both ways are walked.
    """
    flow = Flow(holes, _call_result, by_defaults=by_defaults)
    flow.bind("__name__", "__main__")
    if not block(module.body, flow) and flow.ended:
        flow.join(flow.ended, 1)
    calls = (each.func for each in ast.walk(module) if isinstance(each, ast.Call))
    named = {each.id for each in calls if isinstance(each, ast.Name)}
    for is_root in (True, False):
        for function in flow.functions:  # which may grow
            if id(function.node) not in flow.called and not (is_root and function.node.name in named):
                _walk_uncalled(function, flow)
    return flow


def block(body: Iterable[ast.stmt], flow: Flow) -> bool:
    """Walk through statements; whether what stands behind them is reached."""
    for node in body:
        flow.work.charge()
        flow.line, count = node.lineno, len(flow.ended)
        if RULES.get(type(node), _expressions)(node, flow) is False:
            return False
        del flow.ended[count:]  # where the script goes on too, an exit says nothing of what it trains
    return True


def _expressions(node: ast.AST, flow: Flow) -> bool:
    """A statement that binds nothing; whether the script goes on behind it."""
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.expr):
            value_of(each, flow)
    call = getattr(node, "value", None)
    ended = call if isinstance(call, ast.Call) else node.exc if isinstance(node, ast.Raise) else None
    ends = ended is not None and dotted_name(ended) in EXITS
    if ends:
        flow.ended.append(flow.fork())
    return not ends


# ── what is assigned ───────────────────────────────────────────────────────────────────────────────────────────────────


def _assign(node: ast.Assign | ast.AnnAssign, flow: Flow) -> None:
    if node.value is not None:
        value = value_of(node.value, flow)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            _bind(target, value, flow)


def _augment(node: ast.AugAssign, flow: Flow) -> None:
    """`x += y`: a list or mapping is changed under all its names."""
    held = flow.name(dotted_name(node.target))
    value = value_of(ast.BinOp(node.target, node.op, node.value), flow)
    if isinstance(held, list | dict):
        flow.rebind(held, value)
    _bind(node.target, value, flow)


def _bind(target: ast.expr, value: Any, flow: Flow) -> None:
    """Put a value where a target says."""
    if isinstance(target, ast.Name):
        flow.bind(target.id, value)
    elif isinstance(target, ast.Starred):
        _bind(target.value, flow.unknown(dotted_name(target.value)), flow)
    elif isinstance(target, ast.Tuple | ast.List):
        for each, inner in zip(target.elts, _unpacked(target, value, flow), strict=True):
            _bind(each, inner, flow)
    elif isinstance(target, ast.Attribute):
        root, _, path = dotted_name(target).partition(".")
        if path:
            set_field(flow.name(root), root, path, value, flow)
    elif isinstance(target, ast.Subscript):
        _set_item(target, value, flow)


def _unpacked(target: ast.Tuple | ast.List, value: Any, flow: Flow) -> list[Any]:
    """A value for each part of a target: the arguments of a parser, items one by one, else unknown."""
    count = len(target.elts)
    if isinstance(value, Parsed):
        return [value] * count
    known = isinstance(value, list) and not any(isinstance(each, ast.Starred) for each in target.elts)
    items = cast("list[Any]", value) if known else []
    if len(items) == count and not _has_gap(items):
        return items
    return [flow.unknown(dotted_name(each)) for each in target.elts]


def _set_item(target: ast.Subscript, value: Any, flow: Flow) -> None:
    """`settings["epsilon"] = 0.4`, under every name that the mapping has."""
    path = list[Any]()
    node: ast.expr = target
    while isinstance(node, ast.Subscript):
        path.insert(0, value_of(node.slice, flow))
        node = node.value
    held = flow.name(node.id) if isinstance(node, ast.Name) else GONE
    if isinstance(held, list | dict):
        change(held, _with_item(held, path, value, dotted_name(node), flow), dotted_name(node), flow)


def _with_item(held: Any, path: list[Any], value: Any, name: str, flow: Flow) -> Any:
    """A copy of a list or mapping with one item set; with an unknown rest where it is not known which."""
    key, *rest = path
    if isinstance(held, dict):
        known = cast("dict[Any, Any]", held)
        if not isinstance(key, str):
            return {**known, REST: flow.unknown(f"{name}[…]")}
        inner = known.get(key, flow.unknown(name))
        return {**known, key: _with_item(inner, rest, value, name, flow) if rest else value}
    items = cast("list[Any]", held).copy() if isinstance(held, list) else []
    if isinstance(key, int) and -len(items) <= key < len(items):
        items[key] = _with_item(items[key], rest, value, name, flow) if rest else value
        return items
    return flow.unknown(name, IN_PLACE)


# ── branches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _way(body: Iterable[ast.stmt], flow: Flow, start: State, ways: list[State]) -> None:
    """One more way from where they begin, unless it leaves."""
    flow.state = start
    flow.state = flow.fork()
    if block(body, flow):
        ways.append(flow.state)
    flow.state = start


def _meet(ways: list[State], line: int, flow: Flow) -> bool:
    if ways:
        flow.join(ways, line)
    return bool(ways)


def _if(node: ast.If, flow: Flow) -> bool:
    ways: list[State] = []
    line = node.lineno
    while True:
        flow.line = node.lineno
        known = test_of(node.test, flow)
        if known is not False:
            _way(node.body, flow, flow.state, ways)
        if known is True:
            break
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
            node = node.orelse[0]
            continue
        _way(node.orelse, flow, flow.state, ways)
        break
    return _meet(ways, line, flow)


def _match(node: ast.Match, flow: Flow) -> bool:
    """The same with tests for patterns."""
    subject = ast.Name(" subject")
    flow.bind(subject.id, value_of(node.subject, flow))
    rest: list[ast.stmt] = []
    for case in reversed(node.cases):
        captured = [getattr(each, "name", None) or getattr(each, "rest", None) for each in ast.walk(case.pattern)]
        bound: list[ast.stmt] = [ast.Import([ast.alias(name)], lineno=node.lineno) for name in captured if name]
        tests = [_pattern_test(case.pattern, subject), *([case.guard] if case.guard else [])]
        rest = [ast.If(ast.BoolOp(ast.And(), tests), [*bound, *case.body], rest, lineno=node.lineno)]
    return block(rest, flow)


def _pattern_test(pattern: ast.pattern, subject: ast.expr) -> ast.expr:
    """The test that a pattern stands for; an unknown one where it takes a value apart."""
    if isinstance(pattern, ast.MatchAs) and pattern.pattern is None:
        return ast.Constant(True)
    if isinstance(pattern, ast.MatchOr):
        return ast.BoolOp(ast.Or(), [_pattern_test(each, subject) for each in pattern.patterns])
    if isinstance(pattern, ast.MatchValue | ast.MatchSingleton):
        sign, value = (
            (ast.Eq(), pattern.value)
            if isinstance(pattern, ast.MatchValue)
            else (ast.Is(), ast.Constant(pattern.value))
        )
        return ast.Compare(subject, [sign], [value])
    return ast.Name(" pattern")


@contextmanager
def _exits(kind: str, flow: Flow) -> Generator[list[State]]:
    """The states in which ways leave a loop or a `try` half-way."""
    before, left = flow.exits, list[State]()
    flow.exits = {**before, kind: left}
    yield left
    flow.exits = before


def _try(node: Any, flow: Flow) -> bool:
    start = flow.fork()
    with _exits("try", flow) as raised:
        reached = block(node.body, flow)
    after = flow.state
    ways: list[State] = []
    if reached:
        raised.insert(0, after)
        _way(node.orelse, flow, after, ways)
    for handler in node.handlers:
        flow.join([start, *raised], node.lineno)
        if handler.name:
            flow.bind(handler.name, Unknown(handler.name, handler.lineno))
        _way(handler.body, flow, flow.state, ways)
    met = _meet(ways, node.lineno, flow)
    return block(node.finalbody, flow) and met


def _with(node: Any, flow: Flow) -> bool:
    for item in node.items:
        value_of(item.context_expr, flow)
        for name in stored(item.optional_vars) if item.optional_vars is not None else ():
            flow.bind(name, Unknown(name, node.lineno))
    if not any(dotted_name(item.context_expr).endswith("suppress") for item in node.items):
        return block(node.body, flow)
    handler = ast.ExceptHandler(None, None, [], lineno=node.lineno)
    return _try(ast.Try(node.body, [handler], [], [], lineno=node.lineno), flow)


def _loop(node: Any, flow: Flow) -> bool:
    """A loop: once where it says so, else none, one or many times."""
    values: Any = None if isinstance(node, ast.While) else value_of(node.iter, flow)
    count = (
        len(cast("list[Any]", values)) if isinstance(values, list) and not _has_gap(cast("list[Any]", values)) else -1
    )
    known = test_of(node.test, flow) if isinstance(node, ast.While) else None if count < 0 else count > 0
    if known is False:
        return block(node.orelse, flow)
    start, once = flow.fork(), count == 1
    with _exits("loop", flow) as ways:
        if not once:
            _widen(node, flow)
        if not isinstance(node, ast.While):
            _bind(node.target, values[0] if once else flow.unknown(dotted_name(node.target), REPEATED), flow)
        if block(node.body, flow):
            ways.append(flow.state)
    ways += [] if known else [start]
    if ways:
        flow.join(ways, node.lineno, REPEATED)
    return bool(ways) and block(node.orelse, flow)


def _has_gap(values: list[Any]) -> bool:
    return any(isinstance(each, Unknown) and each.several for each in values)


def _widen(node: Any, flow: Flow) -> None:
    """Names that a loop binds anew are not known when it begins once more; texts and lists that grow are, as far as they go."""
    for name in dict.fromkeys(stored(*node.body)):
        flow.work.charge()
        value = flow.name(name)
        grows = isinstance(value, list) or (isinstance(value, str) and is_command(value))
        if value is not GONE and not grows and not isinstance(value, Unknown):
            flow.bind(name, Unknown(name, node.lineno, REPEATED))


def _leave(node: ast.stmt, flow: Flow) -> bool:
    """`return`, `break`, `continue`, `raise`: what holds there may hold behind the function, the loop, or in a handler."""
    kind = "function" if isinstance(node, ast.Return) else "try" if isinstance(node, ast.Raise) else "loop"
    if isinstance(node, ast.Return):
        flow.state[RESULT] = None if node.value is None else value_of(node.value, flow)
    else:
        _expressions(node, flow)
    if kind in flow.exits:
        flow.exits[kind].append(flow.fork())
    return False


# ── definitions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _define(node: Any, flow: Flow) -> None:
    for each in node.decorator_list:
        value_of(each, flow)
    given = node.args
    places = [*given.posonlyargs, *given.args]
    pairs = [*zip(places[len(places) - len(given.defaults) :], given.defaults, strict=True)]
    pairs += [*zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    defaults = {name.arg: value_of(value, flow) for name, value in pairs if value is not None}
    scopes = tuple(each for each in flow.scopes if each not in flow.class_scopes)  # methods do not see them
    is_generator = any(isinstance(each, ast.Yield | ast.YieldFrom) for each in ast.walk(node))
    more: Any = {"node": node, "scopes": scopes, "defaults": defaults, "is_generator": is_generator}
    function = PythonFunction(f"{node.name}()", node.lineno, **more)
    flow.functions.append(function)
    flow.bind(node.name, function)


def _class(node: ast.ClassDef, flow: Flow) -> None:
    """A class: its fields where it is settings; its methods as functions that nothing is seen to call."""
    _expressions(node, flow)
    flow.bind(node.name, Unknown(node.name, node.lineno))
    before, scope = flow.scopes, flow.number()
    flow.scopes = (scope, *before)
    flow.class_scopes.add(scope)
    block(node.body, flow)
    flow.scopes = before
    if not _is_settings(node):
        return
    flow.classes.add(node.name)
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and _has_default(each.value):
            key, value = each.target.id, flow["name", scope, each.target.id]
            flow["parsed", key] = value
            if flow["default", key] is GONE:
                flow["default", key] = value


def _is_settings(node: ast.ClassDef) -> bool:
    made = [dotted_name(each) for each in node.decorator_list]
    bases = [dotted_name(each) for each in node.bases]
    return any("dataclass" in each or each.startswith("chz") for each in made) and bool(
        CONFIGS.search(node.name) or any(CONFIGS.search(each) for each in bases)
    )


def _has_default(value: ast.expr | None) -> bool:
    """Whether a field has one, also where `field(default=…)` says it."""
    if isinstance(value, ast.Call) and dotted_name(value.func).endswith(("field", "Field")):
        return any(word.arg == "default" for word in value.keywords)
    return value is not None


def _import(node: Any, flow: Flow) -> None:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        flow.bind(name, Unknown(name, node.lineno))


def _global(node: ast.Global, flow: Flow) -> None:
    for name in node.names:
        flow["global", flow.scopes[0], name] = True


def _delete(node: ast.Delete, flow: Flow) -> None:
    for name in (each.id for each in node.targets if isinstance(each, ast.Name)):
        flow.bind(name, Unknown(name, node.lineno, "which the script deletes"))


# ── functions ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call_result(call: PythonCall, function: PythonFunction, flow: Flow) -> Any:
    """What a call comes to: the body of the function with what it is given."""
    flow.called.add(id(function.node))
    flow.work.charge(CALL)
    found = _body(function, _arguments(call, function), flow)
    return Unknown(function.name, call.line) if function.is_generator or found is GONE else found


def _body(function: PythonFunction, given: dict[str, Any], flow: Flow) -> Any:
    """Walk through a body; what it returns, GONE where it is inside itself or never ends."""
    node = function.node
    if id(node) in flow.stack or len(flow.stack) >= DEEPEST:
        return GONE
    start, before = flow.fork(), (flow.scopes, flow.exits, flow.line, flow.depth, flow.is_testing)
    ways, count = list[State](), len(flow.ended)
    flow.stack.append(id(node))
    flow.exits, flow.depth, flow.is_testing = {"function": ways}, 0, False
    flow.scopes = (flow.number(), *function.scopes)
    for name, value in given.items():
        flow.bind(name, value)
    if block(node.body, flow):
        ways.append(flow.state | {RESULT: None})
    flow.stack.pop()
    flow.scopes, flow.exits, flow.line, flow.depth, flow.is_testing = before
    flow.join(ways or flow.ended[count:] or [start], node.lineno)
    del flow.ended[count:]
    found = flow.state.pop(RESULT, GONE)
    is_mixed = type(found) is Unknown and found.name == RESULT[-1]
    return Unknown(function.name, found.line, found.why) if is_mixed else found


def _arguments(call: PythonCall, function: PythonFunction) -> dict[str, Any]:
    """What every parameter is given, by place, by name, or by its default."""
    given = function.node.args
    places = [each.arg for each in (*given.posonlyargs, *given.args)]
    named = [*places, *(each.arg for each in given.kwonlyargs)]
    placed = {} if _has_gap(call.args) else dict(zip(places, call.args, strict=False))
    is_open = _has_gap(call.args) or REST in call.named
    unknown = {name: Unknown(name, function.line) for name in named}
    found = unknown | ({} if is_open else dict(function.defaults)) | placed
    found |= {name: value for name, value in call.named.items() if name in named}
    if given.kwarg is not None:
        found[given.kwarg.arg] = {name: value for name, value in call.named.items() if name not in named}
    if given.vararg is not None:
        found[given.vararg.arg] = Unknown(given.vararg.arg, function.line)
    return found


def _walk_uncalled(function: PythonFunction, flow: Flow) -> None:
    """A function that nothing is seen to call: what it sets besides others is kept, what it sets differently is unknown."""
    flow.called.add(id(function.node))
    start = flow.fork()
    _body(function, {each.arg: _unseen(each, flow) for each in python_parameters(function.node.args)}, flow)
    kept = flow.fork()
    for slot, value in flow.state.items():
        held = start.get(slot, GONE)
        if held is GONE or held is value:
            continue
        if slot[0] == "config":
            kept[slot] = held
        elif slot[0] in ("key", "default", "parsed") and not flow.work.same(held, value):
            flow.state[slot] = kept[slot] = Unknown(slot[1], function.line, FUNCTIONS)
    flow.join([kept, flow.state], function.line or 1, FUNCTIONS)


def _unseen(each: ast.arg, flow: Flow) -> Any:
    """An argument that nobody is seen to give: settings of the script's own class, or its parsed arguments by their name, else unknown."""
    note = each.annotation
    quoted = note.value if isinstance(note, ast.Constant) else None
    if note is not None and (quoted or dotted_name(note)) in flow.classes:
        return Parsed(each.arg, each.lineno)
    held = flow.name(each.arg)
    return held if isinstance(held, Parsed) else Unknown(each.arg, each.lineno)


RULES: dict[type, Any] = {
    **dict.fromkeys((ast.Assign, ast.AnnAssign), _assign),
    **dict.fromkeys((ast.Try, ast.TryStar), _try),
    **dict.fromkeys((ast.With, ast.AsyncWith), _with),
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While), _loop),
    **dict.fromkeys((ast.Return, ast.Break, ast.Continue, ast.Raise), _leave),
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), _define),
    **dict.fromkeys((ast.Import, ast.ImportFrom), _import),
    ast.AugAssign: _augment,
    ast.If: _if,
    ast.Match: _match,
    ast.ClassDef: _class,
    ast.Global: _global,
    ast.Delete: _delete,
}
