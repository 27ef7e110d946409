"""What a shell's tests and sums come to, where their words are known."""

from __future__ import annotations

import ast
import fnmatch
import operator
import re
from collections.abc import Callable
from typing import Any

from trimtab.dialects.sources.unknown import HOLE

# ── tests ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
# Whether a test of a script holds, where what it compares is known.

NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def truth(words: list[str]) -> bool | None:
    """True, False, or None where it depends on something unknown: files, the environment, arguments."""
    for sign, join in (("||", any), ("-o", any), ("&&", all), ("-a", all)):
        if sign in words:
            place = words.index(sign)
            sides = [truth(words[:place]), truth(words[place + 1 :])]
            if (join is any and True in sides) or (join is all and False in sides):
                return join is any
            return None if None in sides else join(bool(side) for side in sides)
    if words[:1] == ["!"]:
        inner = truth(words[1:])
        return None if inner is None else not inner
    if any(HOLE.search(word) for word in words):
        return None
    return _plain(words)


def _plain(words: list[str]) -> bool | None:
    if len(words) == 1:
        return bool(words[0])
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (words[1] == "") == (words[0] == "-z")
    if len(words) != 3:
        return None
    left, sign, right = words
    if sign in ("=", "==", "!="):
        return fnmatch.fnmatchcase(left, right) == (sign != "!=")
    if sign in NUMBERS:
        try:
            return NUMBERS[sign](int(left), int(right))
        except ValueError:
            return None
    return None


# ── arithmetic ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Whole numbers: + - * / % **, comparisons, && || !, ?:, parentheses.

LARGEST = 2**63


def _quotient(a: int, b: int) -> int:
    """Rounded toward 0, as a shell does."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _quotient,
    ast.Mod: lambda a, b: a - b * _quotient(a, b),
    ast.Pow: lambda a, b: a**b if 0 <= b <= 63 and abs(a) <= 10**6 else _too_large(),
    ast.LShift: lambda a, b: a << b if 0 <= b < 63 else _too_large(),
    ast.RShift: lambda a, b: a >> b if 0 <= b < 63 else _too_large(),
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}
COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
LONGEST = 500


def _too_large() -> int:
    raise ValueError("too large")


def evaluate(text: str, value: Callable[[str], str | None]) -> int | None:
    """What an expression comes to, its names looked up; None where it is not plain arithmetic or a name is not known."""
    if len(text) > LONGEST:
        return None
    plain = text.replace("\n", " ").replace("&&", " and ").replace("||", " or ")
    plain = re.sub(r"!(?!=)", " not ", plain)
    plain = re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", r"\1", plain)
    plain = re.sub(r"\b0+(?=\d)", "", plain)
    try:
        return _value(ast.parse(plain.strip() or "0", mode="eval").body, value)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError, OverflowError):
        return None


def _value(node: ast.expr, value: Callable[[str], str | None]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        text = value(node.id)
        if text is None:
            raise ValueError(node.id)
        return int(text.strip() or "0")
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        found = OPERATORS[type(node.op)](_value(node.left, value), _value(node.right, value))
        return found if abs(found) < LARGEST else _too_large()
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, value)
        signs: dict[type[ast.unaryop], int] = {ast.USub: -inner, ast.UAdd: inner, ast.Not: int(not inner)}
        return signs.get(type(node.op), inner)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        return int(COMPARISONS[type(node.ops[0])](_value(node.left, value), _value(node.comparators[0], value)))
    if isinstance(node, ast.BoolOp):
        values = [bool(_value(each, value)) for each in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    raise ValueError(type(node).__name__)
