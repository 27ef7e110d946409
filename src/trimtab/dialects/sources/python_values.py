"""What an expression of a Python script comes to, where its parts are literals or names bound to them; and what its calls do."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from typing import Any, cast

from trimtab.dialects.sources.python_calls import REST, PythonCall, as_text, result_of
from trimtab.dialects.sources.python_flow import GONE, MOST_SIZE, Flow, Made, Parsed, PythonFunction
from trimtab.dialects.sources.unknown import HOLE, Unknown

LONGEST = 100_000
DEEPEST = 60
NUMBERS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
TOO_LARGE = "which is larger than settings are"
COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` of names and attributes; empty parts for anything else."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return ".".join(["", *reversed(parts)]) if parts else ""
    return ".".join([node.id, *reversed(parts)])


def value_of(node: ast.expr, flow: Flow) -> Any:
    """The value of an expression, whose calls are taken once; Unknown by the name it depends on."""
    if flow.depth > DEEPEST:
        return flow.unknown("an expression nested too deeply")
    flow.work.charge()
    flow.depth += 1
    found = RULES.get(type(node), _parts)(node, flow)
    flow.depth -= 1
    if isinstance(found, list | dict) and flow.work.size(found) > MOST_SIZE:
        return flow.unknown(_short(node), TOO_LARGE)
    return flow.unknown(_short(node), "which is not worked out here") if found is NotImplemented else found


def test_of(node: ast.expr, flow: Flow) -> bool | None:
    """Whether a test holds, where the script itself says so."""
    if dotted_name(node).rpartition(".")[2] == "TYPE_CHECKING":
        return False
    before, flow.is_testing = flow.is_testing, True
    value = value_of(node, flow)
    flow.is_testing = before
    return None if _is_open(value) else bool(value)


def _is_open(value: Any) -> bool:
    """Whether a value is unknown, or a text or list with something unknown in it."""
    if isinstance(value, list):
        return any(isinstance(each, Unknown) for each in cast("list[Any]", value))
    return isinstance(value, Unknown) or (isinstance(value, str) and HOLE.search(value) is not None)


def _parts(node: ast.AST, flow: Flow) -> Any:
    """An expression of any other form: its parts are looked at for what their calls do."""
    before = flow.scopes
    inner = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Lambda | COMPREHENSIONS):
        own = (
            stored(*inner) if not isinstance(node, ast.Lambda) else (each.arg for each in python_parameters(node.args))
        )
        inner.sort(key=lambda each: not isinstance(each, ast.comprehension))
        flow.scopes = (flow.number(), *before)
        for name in own:
            flow.bind(name, flow.unknown(name))
    for each in inner:
        if isinstance(each, ast.expr) and not isinstance(getattr(each, "ctx", None), ast.Store):
            value_of(each, flow)
        elif isinstance(each, ast.comprehension):
            _parts(each, flow)
    flow.scopes = before
    return NotImplemented


def python_parameters(given: ast.arguments) -> Iterator[ast.arg]:
    """Every parameter of a function."""
    yield from (*given.posonlyargs, *given.args, *given.kwonlyargs)
    yield from (each for each in (given.vararg, given.kwarg) if each is not None)


def stored(*nodes: ast.AST) -> Iterator[str]:
    """The names that are bound somewhere inside."""
    inner = (each for node in nodes for each in ast.walk(node))
    return (each.id for each in inner if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))


def _constant(node: Any, flow: Flow) -> Any:
    del flow
    return NotImplemented if isinstance(node.value, bytes | complex) or node.value is ... else node.value


def _name(node: Any, flow: Flow) -> Any:
    found = flow.name(node.id)
    return flow.unknown(node.id) if found is GONE else found


def _walrus(node: Any, flow: Flow) -> Any:
    value = value_of(node.value, flow)
    flow.bind(node.target.id, value)
    return value


def _attribute(node: Any, flow: Flow) -> Any:
    """`args.beta`: the default of that argument, where the script's own parser has it; `config.beta`: as it was made."""
    held = value_of(node.value, flow)
    found = GONE
    if isinstance(held, Parsed):
        found = flow["parsed", node.attr] if flow.by_defaults or not flow.is_testing else GONE
    elif isinstance(held, Made):
        found = flow.alike(held.numbers).keys.get(node.attr, GONE)
    return NotImplemented if found is GONE else found


def _list_value(node: Any, flow: Flow) -> Any:
    found: list[Any] = []
    for each in node.elts:
        inner = value_of(each.value if isinstance(each, ast.Starred) else each, flow)
        if not isinstance(each, ast.Starred):
            found.append(inner)
        elif isinstance(inner, list):
            found += cast("list[Any]", inner)
        else:
            found.append(flow.unknown(_short(each.value), several=True))
        flow.work.charge(1)
    return found


def _dictionary(node: Any, flow: Flow) -> Any:
    found: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        name = REST if key is None else value_of(key, flow)
        inner = value_of(value, flow)
        if key is None and isinstance(inner, dict):
            found |= cast("dict[Any, Any]", inner)
        elif isinstance(name, str):
            found[name] = inner
        elif isinstance(name, Unknown):
            found[REST] = flow.unknown(name.name)
    return found


def _text_value(node: Any, flow: Flow) -> Any:
    """An f-string; what is unknown in it stays as a hole."""
    parts: list[str] = []
    for each in node.values:
        if isinstance(each, ast.Constant):
            parts.append(str(each.value))
            continue
        value = value_of(each.value, flow)
        value = value if each.format_spec is None else flow.unknown(_short(each.value))
        parts.append(as_text(value, flow, f"{{{value.name}}}" if isinstance(value, Unknown) else ""))
    return "".join(parts)[:LONGEST]


def _operation(node: Any, flow: Flow) -> Any:
    return combined(node.op, value_of(node.left, flow), value_of(node.right, flow), flow)


def combined(sign: ast.operator, left: Any, right: Any, flow: Flow) -> Any:
    """Two values added, subtracted and so on; NotImplemented where that is not worked out."""
    adds = isinstance(sign, ast.Add)
    if adds and isinstance(left, list) and isinstance(right, Unknown):
        return [*cast("list[Any]", left), Unknown(right.name, right.line, right.why, several=True)]
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        if adds and (isinstance(left, str) or isinstance(right, str)):
            return f"{as_text(left, flow)}{as_text(right, flow)}"[:LONGEST]
        return left if isinstance(left, Unknown) else right
    if isinstance(sign, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
        return cast("dict[Any, Any]", left) | cast("dict[Any, Any]", right)
    if adds and type(left) is type(right) and isinstance(left, str | list):
        flow.work.charge((len(left) + len(right)) // 100 + 1)
        joined = left + right
        return joined if len(joined) <= LONGEST else NotImplemented
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return NotImplemented
    return _number(type(sign), left, right)


def _number(sign: type, left: float, right: float) -> Any:
    try:
        if sign is ast.Pow:
            return left**right if abs(right) <= 64 and abs(left) <= 1e6 else NotImplemented
        if sign not in NUMBERS or max(abs(left), abs(right)) > 1e18:
            return NotImplemented
        return NUMBERS[sign](left, right)
    except (ZeroDivisionError, OverflowError, ValueError):
        return NotImplemented


def _unary_value(node: Any, flow: Flow) -> Any:
    value = value_of(node.operand, flow)
    if isinstance(node.op, ast.Not):
        return NotImplemented if _is_open(value) else not value
    if isinstance(node.op, ast.USub) and isinstance(value, int | float):
        return -value
    return value if isinstance(value, Unknown) else NotImplemented


def _compared(node: Any, flow: Flow) -> Any:
    """`a == b`, where both are known."""
    one, *others = [value_of(each, flow) for each in (node.left, *node.comparators)]
    flow.work.charge(sum(map(flow.work.size, (one, *others))))
    if len(others) > 1 or _is_open(one) or _is_open(others[0]):
        return NotImplemented
    try:
        return COMPARED[type(node.ops[0])](one, others[0])
    except TypeError:
        return NotImplemented


def _chained(node: Any, flow: Flow) -> Any:
    """`a and b`, `a or b`: as far as what stands in front decides."""
    value, is_known = None, True
    for each in node.values:
        value = value_of(each, flow)
        is_known = is_known and not _is_open(value)
        if is_known and bool(value) == isinstance(node.op, ast.Or):
            break
    return value if is_known else NotImplemented


def _either(node: Any, flow: Flow) -> Any:
    """`a if test else b`: known where the test is, or where both agree."""
    test = test_of(node.test, flow)
    if test is not None:
        return value_of(node.body if test else node.orelse, flow)
    one, other = value_of(node.body, flow), value_of(node.orelse, flow)
    is_same = flow.work.same(one, other)
    return one if is_same else flow.unknown(_short(node), "of which the file does not say which holds")


def _item(node: Any, flow: Flow) -> Any:
    """One item of a list or dictionary; a variable of the environment by its name."""
    held, key = value_of(node.value, flow), value_of(node.slice, flow)
    if dotted_name(node.value).endswith("environ"):
        return flow.unknown(f"the environment variable {_short(node.slice)}")
    try:
        if isinstance(held, dict):
            return cast("dict[Any, Any]", held)[key]
        known = isinstance(held, list) and isinstance(key, int) and not _is_open(held)
        return cast("list[Any]", held)[key] if known else NotImplemented
    except (KeyError, IndexError, TypeError):
        return NotImplemented


def _inner(node: Any, flow: Flow) -> Any:
    return value_of(node.value, flow)


def _call(node: ast.Call, flow: Flow) -> Any:
    """A call: of a function of the script its result, else what a rule says."""
    held = value_of(node.func.value if isinstance(node.func, ast.Attribute) else node.func, flow)
    line, flow.line = flow.line, node.lineno
    shown = [dotted_name(each) or _short(each) for each in node.args]
    call = PythonCall(dotted_name(node.func), node.lineno, held, shown=shown)
    for each in node.args:
        is_open = isinstance(each, ast.Starred)
        value = value_of(each.value if is_open else each, flow)
        call.args.append(flow.unknown(_short(each), several=True) if is_open else value)
    for word in node.keywords:
        value = value_of(word.value, flow)
        if word.arg is not None:
            call.named[word.arg] = value
        elif isinstance(value, dict):
            call.named.update(cast("dict[str, Any]", value))
        else:
            call.named[REST] = value
        if word.arg is None and (not isinstance(value, dict) or REST in value):
            call.rest.append(dotted_name(word.value) or "…")
    is_followed = isinstance(held, PythonFunction) and isinstance(node.func, ast.Name)
    found = flow.follow(call, held, flow) if is_followed else result_of(call, flow)
    flow.line = line
    return found


RULES: dict[type, Any] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.List: _list_value,
    ast.Tuple: _list_value,
    ast.Dict: _dictionary,
    ast.JoinedStr: _text_value,
    ast.BinOp: _operation,
    ast.UnaryOp: _unary_value,
    ast.Compare: _compared,
    ast.BoolOp: _chained,
    ast.IfExp: _either,
    ast.Call: _call,
    ast.Subscript: _item,
    ast.Await: _inner,
    ast.NamedExpr: _walrus,
}


def _short(node: ast.AST) -> str:
    """A few words for an expression, found without walking through it."""
    if isinstance(node, ast.Constant):
        return repr(node.value)[:60]
    name = dotted_name(node)
    return f"{name}(…)" if isinstance(node, ast.Call) and name else name or "an expression"
