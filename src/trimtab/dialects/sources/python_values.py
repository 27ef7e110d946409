"""What an expression of a Python script comes to, where its parts are literals or names bound to them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any, cast

from trimtab.dialects.sources.python_flow import GONE, MOST_SIZE, Flow, Made
from trimtab.dialects.sources.unknown import HOLE, Unknown

LONGEST = 100_000
DEEPEST = 60
PARSERS = ("parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_args_and_config", "entrypoint")
"""Methods that return the arguments of a script."""
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
REST = "**"
"""The key of a mapping under which another stands that it takes in and that is not known."""
TOO_LARGE = "which is larger than settings are"


class Parsed(Unknown):
    """What a parser of arguments returned: unknown as a whole, its attributes known by their defaults."""


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


def value_of(node: ast.expr, flow: Flow, line: int, depth: int = 0) -> Any:
    """The value of an expression; Unknown by the name it depends on."""
    if depth > DEEPEST:
        return Unknown("an expression nested too deeply", line)
    flow.work.charge()
    rule = RULES.get(type(node))
    found = rule(node, flow, line, depth + 1) if rule else NotImplemented
    if isinstance(found, list | dict) and flow.work.size(found) > MOST_SIZE:
        return Unknown(_short(node), line, TOO_LARGE)
    return Unknown(_short(node), line, "which is not worked out here") if found is NotImplemented else found


def test_of(node: ast.expr, flow: Flow, line: int) -> bool | None:
    """Whether a test holds, where the script itself says so."""
    if dotted_name(node).rpartition(".")[2] == "TYPE_CHECKING":
        return False
    before, flow.is_testing = flow.is_testing, True
    value = value_of(node, flow, line)
    flow.is_testing = before
    return None if _is_open(value) else bool(value)


def _is_open(value: Any) -> bool:
    """Whether a value is unknown, or a text or list with something unknown in it."""
    if isinstance(value, list):
        return any(isinstance(each, Unknown) for each in cast("list[Any]", value))
    return isinstance(value, Unknown) or (isinstance(value, str) and HOLE.search(value) is not None)


def _constant(node: Any, flow: Flow, line: int, depth: int) -> Any:
    del flow, line, depth
    return NotImplemented if isinstance(node.value, bytes | complex) or node.value is ... else node.value


def _name(node: Any, flow: Flow, line: int, depth: int) -> Any:
    del depth
    found = flow.name(node.id)
    return Unknown(node.id, line) if found is GONE else found


def _attribute(node: Any, flow: Flow, line: int, depth: int) -> Any:
    """`args.beta`: the default of that argument, where the script's own parser has it; `config.beta`: as it was made."""
    held = value_of(node.value, flow, line, depth)
    found = GONE
    if isinstance(held, Parsed):
        found = flow["parsed", node.attr] if flow.by_defaults or not flow.is_testing else GONE
    elif isinstance(held, Made):
        found = flow.config(held.number).keys.get(node.attr, GONE)
    return NotImplemented if found is GONE else found


def _list_value(node: Any, flow: Flow, line: int, depth: int) -> Any:
    found: list[Any] = []
    for each in node.elts:
        inner = value_of(each.value if isinstance(each, ast.Starred) else each, flow, line, depth)
        if not isinstance(each, ast.Starred):
            found.append(inner)
        elif isinstance(inner, list):
            found += cast("list[Any]", inner)
        else:
            found.append(Unknown(_short(each.value), line, several=True))
        flow.work.charge(1)
    return found


def _dictionary(node: Any, flow: Flow, line: int, depth: int) -> Any:
    found: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        inner = value_of(value, flow, line, depth)
        if key is None:
            found |= cast("dict[Any, Any]", inner) if isinstance(inner, dict) else {REST: inner}
            continue
        name = value_of(key, flow, line, depth)
        if isinstance(name, str):
            found[name] = inner
        elif isinstance(name, Unknown):
            found[REST] = Unknown(_short(key), line)
    return found


def _text_value(node: Any, flow: Flow, line: int, depth: int) -> Any:
    """An f-string; what is unknown in it stays as a hole."""
    parts: list[str] = []
    for each in node.values:
        if isinstance(each, ast.Constant):
            parts.append(str(each.value))
            continue
        value = (
            value_of(each.value, flow, line, depth) if each.format_spec is None else Unknown(_short(each.value), line)
        )
        parts.append(as_text(value, flow, f"{{{value.name}}}" if isinstance(value, Unknown) else ""))
    return "".join(parts)[:LONGEST]


def as_text(value: Any, flow: Flow, name: str = "") -> str:
    """A value inside a text: a hole where it is unknown."""
    flow.work.charge(flow.work.size(value))
    if not isinstance(value, Unknown):
        return str(value)
    return flow.holes.hole(name or value.name, value.line, value.why, value.several, value.maybe)


def _sum(node: Any, flow: Flow, line: int, depth: int) -> Any:
    left, right = value_of(node.left, flow, line, depth), value_of(node.right, flow, line, depth)
    if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, Unknown):
        return [*cast("list[Any]", left), Unknown(right.name, right.line, right.why, several=True)]
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        if isinstance(node.op, ast.Add) and (isinstance(left, str) or isinstance(right, str)):
            return f"{as_text(left, flow)}{as_text(right, flow)}"[:LONGEST]
        return left if isinstance(left, Unknown) else right
    if isinstance(node.op, ast.BitOr) and isinstance(left, dict) and isinstance(right, dict):
        return cast("dict[Any, Any]", left) | cast("dict[Any, Any]", right)
    if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, str | list):
        flow.work.charge((len(left) + len(right)) // 100 + 1)
        joined = left + right
        return joined if len(joined) <= LONGEST else NotImplemented
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return NotImplemented
    return _number(type(node.op), left, right)


def _number(sign: type, left: float, right: float) -> Any:
    try:
        if sign is ast.Pow:
            return left**right if abs(right) <= 64 and abs(left) <= 1e6 else NotImplemented
        if sign not in NUMBERS or max(abs(left), abs(right)) > 1e18:
            return NotImplemented
        return NUMBERS[sign](left, right)
    except (ZeroDivisionError, OverflowError, ValueError):
        return NotImplemented


def _unary_value(node: Any, flow: Flow, line: int, depth: int) -> Any:
    value = value_of(node.operand, flow, line, depth)
    if isinstance(node.op, ast.Not):
        return NotImplemented if _is_open(value) else not value
    if isinstance(node.op, ast.USub) and isinstance(value, int | float):
        return -value
    return value if isinstance(value, Unknown) else NotImplemented


def _compared(node: Any, flow: Flow, line: int, depth: int) -> Any:
    """`a == b`, where both are known."""
    if len(node.ops) != 1:
        return NotImplemented
    one, other = value_of(node.left, flow, line, depth), value_of(node.comparators[0], flow, line, depth)
    flow.work.charge(flow.work.size(one) + flow.work.size(other))
    try:
        return NotImplemented if _is_open(one) or _is_open(other) else COMPARED[type(node.ops[0])](one, other)
    except TypeError:
        return NotImplemented


def _chained(node: Any, flow: Flow, line: int, depth: int) -> Any:
    """`a and b`, `a or b`: as far as what stands in front decides."""
    value: Any = None
    for each in node.values:
        value = value_of(each, flow, line, depth)
        if _is_open(value):
            return NotImplemented
        if bool(value) == isinstance(node.op, ast.Or):
            break
    return value


def _either(node: Any, flow: Flow, line: int, depth: int) -> Any:
    """`a if test else b`: known where the test is, or where both agree."""
    test = test_of(node.test, flow, line)
    if test is not None:
        return value_of(node.body if test else node.orelse, flow, line, depth)
    one, other = value_of(node.body, flow, line, depth), value_of(node.orelse, flow, line, depth)
    return (
        one if flow.work.same(one, other) else Unknown(_short(node), line, "of which the file does not say which holds")
    )


def _call(node: Any, flow: Flow, line: int, depth: int) -> Any:
    if id(node) in flow.results:
        return flow.results[id(node)]
    name = dotted_name(node.func)
    if name.rpartition(".")[2] in PARSERS:
        return Parsed(f"{name}()", line)
    if name == "dict" and len(node.args) <= 1:
        keys: list[ast.expr | None] = [None] * len(node.args)
        keys += [None if word.arg is None else ast.Constant(word.arg) for word in node.keywords]
        values = [*node.args, *(word.value for word in node.keywords)]
        return _dictionary(ast.Dict(keys, values), flow, line, depth)
    if name in ("float", "int", "str", "bool") and len(node.args) == 1 and not node.keywords:
        return _cast(name, value_of(node.args[0], flow, line, depth), flow)
    if name.endswith(("environ.get", "getenv")):
        return Unknown(f"the environment variable {_short(node.args[0])}" if node.args else name, line)
    return _method(node, flow, line, depth) if isinstance(node.func, ast.Attribute) else NotImplemented


def _cast(name: str, value: Any, flow: Flow) -> Any:
    if _is_open(value):
        return value
    flow.work.charge(flow.work.size(value))
    try:
        return {"float": float, "int": int, "str": str, "bool": bool}[name](value)
    except (TypeError, ValueError, OverflowError):
        return NotImplemented


def _method(node: Any, flow: Flow, line: int, depth: int) -> Any:
    """Methods that leave what they are called on as it is."""
    held = value_of(node.func.value, flow, line, depth)
    if node.func.attr == "strip" and not node.args and isinstance(held, str):
        return held.strip()
    if node.func.attr == "copy" and not node.args and isinstance(held, list | dict):
        return cast("list[Any] | dict[Any, Any]", held).copy()
    if node.func.attr == "join" and len(node.args) == 1 and isinstance(held, str):
        words = value_of(node.args[0], flow, line, depth)
        if isinstance(words, list):
            return held.join(as_text(each, flow) for each in cast("list[Any]", words))[:LONGEST]
    if node.func.attr == "get" and node.args and isinstance(held, dict):
        key = value_of(node.args[0], flow, line, depth)
        known = cast("dict[Any, Any]", held)
        if isinstance(key, str) and REST not in known:
            return known[key] if key in known else _default(node, flow, line, depth)
    return NotImplemented


def _default(node: Any, flow: Flow, line: int, depth: int) -> Any:
    return value_of(node.args[1], flow, line, depth) if len(node.args) > 1 else None


def _item(node: Any, flow: Flow, line: int, depth: int) -> Any:
    """One item of a list or dictionary; a variable of the environment by its name."""
    if dotted_name(node.value).endswith("environ"):
        return Unknown(f"the environment variable {_short(node.slice)}", line)
    held, key = value_of(node.value, flow, line, depth), value_of(node.slice, flow, line, depth)
    try:
        if isinstance(held, dict):
            return cast("dict[Any, Any]", held)[key]
        known = isinstance(held, list) and isinstance(key, int) and not _is_open(held)
        return cast("list[Any]", held)[key] if known else NotImplemented
    except (KeyError, IndexError, TypeError):
        return NotImplemented


def _inner(node: Any, flow: Flow, line: int, depth: int) -> Any:
    return value_of(node.value, flow, line, depth)


RULES: dict[type, Any] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.List: _list_value,
    ast.Tuple: _list_value,
    ast.Dict: _dictionary,
    ast.JoinedStr: _text_value,
    ast.BinOp: _sum,
    ast.UnaryOp: _unary_value,
    ast.Compare: _compared,
    ast.BoolOp: _chained,
    ast.IfExp: _either,
    ast.Call: _call,
    ast.Subscript: _item,
    ast.Await: _inner,
    ast.NamedExpr: _inner,
}


def _short(node: ast.AST) -> str:
    """A few words for an expression, found without walking through it."""
    if isinstance(node, ast.Constant):
        return repr(node.value)[:60]
    name = dotted_name(node)
    return f"{name}(…)" if isinstance(node, ast.Call) and name else name or "an expression"
