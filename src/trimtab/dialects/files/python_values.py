"""What an expression of a Python script comes to, where its parts are literals or names bound to them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab.dialects.files.unknown import Holes, Unknown

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


@dataclass
class Names:
    """The names a script has bound so far; one that is bound in two ways to different values is unknown."""

    holes: Holes
    known: dict[str, Any] = field(default_factory=dict[str, Any])
    parsed: dict[str, Any] = field(default_factory=dict[str, Any])
    """The arguments that the script's parser has, with their defaults: it is read as launched without any."""
    parsers: set[str] = field(default_factory=set[str])
    """Functions of the script that parse its arguments."""
    classes: set[str] = field(default_factory=set[str])
    """Classes of the script whose fields are its settings."""
    elsewhere: list[str] = field(default_factory=list[str])
    """Mappings that settings are taken from and that the script does not fix."""

    def add(self, name: str, value: Any) -> None:
        """Bind a name."""
        self.known[name] = value


class Parsed(Unknown):
    """What a parser of arguments returned: unknown as a whole, its attributes known by their defaults."""


def dotted_name(node: ast.AST) -> str:
    """`a.b.c` of names and attributes; empty parts for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted_name(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return dotted_name(node.func)
    return ""


def value_of(node: ast.expr, names: Names, line: int, depth: int = 0) -> Any:
    """The value of an expression; Unknown by the name it depends on."""
    if depth > DEEPEST:
        return Unknown("an expression nested too deeply", line)
    rule = RULES.get(type(node))
    found = rule(node, names, line, depth + 1) if rule else NotImplemented
    return Unknown(_short(node), line, "which is not worked out here") if found is NotImplemented else found


def _constant(node: Any, names: Names, line: int, depth: int) -> Any:
    del names, line, depth
    return NotImplemented if isinstance(node.value, bytes | complex) or node.value is ... else node.value


def _name(node: Any, names: Names, line: int, depth: int) -> Any:
    del depth
    return names.known.get(node.id, Unknown(node.id, line))


def _attribute(node: Any, names: Names, line: int, depth: int) -> Any:
    """`args.beta`: the default of that argument, where the script's own parser has it."""
    held = value_of(node.value, names, line, depth)
    if isinstance(held, Parsed) and node.attr in names.parsed:
        return names.parsed[node.attr]
    return NotImplemented


def _list_value(node: Any, names: Names, line: int, depth: int) -> Any:
    return [value_of(each, names, line, depth) for each in node.elts if not isinstance(each, ast.Starred)]


def _dictionary(node: Any, names: Names, line: int, depth: int) -> Any:
    found: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        inner = value_of(value, names, line, depth)
        if key is None:
            found |= cast("dict[Any, Any]", inner) if isinstance(inner, dict) else {}
            continue
        name = value_of(key, names, line, depth)
        if isinstance(name, str):
            found[name] = inner
    return found


def _text_value(node: Any, names: Names, line: int, depth: int) -> Any:
    """An f-string; what is unknown in it stays as a hole."""
    parts: list[str] = []
    for each in node.values:
        if isinstance(each, ast.Constant):
            parts.append(str(each.value))
            continue
        value = (
            value_of(each.value, names, line, depth) if each.format_spec is None else Unknown(_short(each.value), line)
        )
        parts.append(names.holes.hole(f"{{{value.name}}}", value.line) if isinstance(value, Unknown) else str(value))
    return "".join(parts)[:LONGEST]


def _sum(node: Any, names: Names, line: int, depth: int) -> Any:
    left, right = value_of(node.left, names, line, depth), value_of(node.right, names, line, depth)
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        texts = [each for each in (left, right) if isinstance(each, str)]
        unknown = left if isinstance(left, Unknown) else right
        if texts and isinstance(node.op, ast.Add):
            parts = [
                names.holes.hole(each.name, each.line) if isinstance(each, Unknown) else str(each)
                for each in (left, right)
            ]
            return "".join(parts)
        return unknown
    if isinstance(node.op, ast.Add) and type(left) is type(right) and isinstance(left, str | list):
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


def _unary_value(node: Any, names: Names, line: int, depth: int) -> Any:
    value = value_of(node.operand, names, line, depth)
    if isinstance(node.op, ast.Not):
        return NotImplemented if isinstance(value, Unknown) else not value
    if isinstance(node.op, ast.USub) and isinstance(value, int | float):
        return -value
    return value if isinstance(value, Unknown) else NotImplemented


def _either(node: Any, names: Names, line: int, depth: int) -> Any:
    """`a if test else b`: known where the test is, or where both agree."""
    test = value_of(node.test, names, line, depth)
    if not isinstance(test, Unknown):
        return value_of(node.body if test else node.orelse, names, line, depth)
    one, other = value_of(node.body, names, line, depth), value_of(node.orelse, names, line, depth)
    return one if one == other else Unknown(_short(node), line, "of which the file does not say which holds")


def _call(node: Any, names: Names, line: int, depth: int) -> Any:
    name = dotted_name(node.func)
    if name.rpartition(".")[2] in PARSERS or name in names.parsers:
        return Parsed(f"{name}()", line)
    if name == "dict" and not node.args:
        return {word.arg: value_of(word.value, names, line, depth) for word in node.keywords if word.arg}
    if name in ("float", "int", "str", "bool") and len(node.args) == 1 and not node.keywords:
        value = value_of(node.args[0], names, line, depth)
        if isinstance(value, Unknown):
            return value
        try:
            return {"float": float, "int": int, "str": str, "bool": bool}[name](value)
        except (TypeError, ValueError, OverflowError):
            return NotImplemented
    if name.endswith(("environ.get", "getenv")):
        return Unknown(f"the environment variable {_short(node.args[0])}" if node.args else name, line)
    if name.endswith(".strip") and not node.args and isinstance(node.func, ast.Attribute):
        value = value_of(node.func.value, names, line, depth)
        return value.strip() if isinstance(value, str) else NotImplemented
    return NotImplemented


def _item(node: Any, names: Names, line: int, depth: int) -> Any:
    """One item of a list or dictionary; a variable of the environment by its name."""
    if dotted_name(node.value).endswith("environ"):
        return Unknown(f"the environment variable {_short(node.slice)}", line)
    held, key = value_of(node.value, names, line, depth), value_of(node.slice, names, line, depth)
    try:
        if isinstance(held, dict):
            return cast("dict[Any, Any]", held)[key]
        return cast("list[Any]", held)[key] if isinstance(held, list) and isinstance(key, int) else NotImplemented
    except (KeyError, IndexError, TypeError):
        return NotImplemented


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
    ast.IfExp: _either,
    ast.Call: _call,
    ast.Subscript: _item,
}


def _short(node: ast.AST) -> str:
    """A few words for an expression, found without walking through it."""
    if isinstance(node, ast.Constant):
        return repr(node.value)[:60]
    name = dotted_name(node)
    return f"{name}(…)" if isinstance(node, ast.Call) and name else name or "an expression"
