"""The small changes that `make mutants` tries: what they are, where they can be made, and which of them are drawn."""

from __future__ import annotations

import ast
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = Path("src/trimtab")
PARTS = {
    "core/fast": (0.1, ("tests/core/fast", "tests/laws/test_fast.py", "tests/laws/test_fast_losses.py")),
    "core": (0.25, ("tests/core", "tests/laws")),
    "log_probs": (0.1, ("tests/log_probs", "tests/laws")),
    "losses": (0.2, ("tests/losses", "tests/laws")),
    "advantage": (0.15, ("tests/advantage", "tests/laws")),
    "config": (0.15, ("tests/config", "tests/test_defaults.py")),
    "explain": (0.05, ("tests/explain",)),
}
"""The share of the changes that falls on a folder, and the tests near it; of two folders that hold a file the first is its own."""
CLAMPS = ("clamp", "clamp_", "clip")
FLIPS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
SWAPS = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Pow: ("**", "*"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
UNCHANGED = ("annotation", "returns", "decorator_list")
"""Parts of a statement that say what it is and do nothing."""


@dataclass(frozen=True)
class Change:
    """What stands from `start` to `end` in a file, in bytes, becomes `put`."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    put: str
    said: str
    """The expression before and after."""
    text: str
    """The line as it stands."""
    spans: tuple[tuple[int, int], ...]
    """The lines of the expression, of its statement and of what is around that."""

    @property
    def name(self) -> str:
        """What it is called where lines are not counted."""
        return f"{self.file} | {self.text} | {self.kind}: {self.said}"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.kind}: {self.said}"

    def made(self, source: bytes) -> bytes:
        """The file with it."""
        return source[: self.start] + self.put.encode() + source[self.end :]


Edit = tuple[str, int, int, str]
"""Its kind, from where, to where, and what stands there then."""


class Source:
    """A file whose expressions are known by their places."""

    def __init__(self, file: str, text: bytes) -> None:
        self.file, self.text, self.lines = file, text, text.split(b"\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def span(self, node: Any) -> tuple[int, int]:
        """Where an expression begins and ends."""
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: Any) -> str:
        """The text of an expression."""
        start, end = self.span(node)
        return self.text[start:end].decode()

    def change(self, node: Any, edit: Edit, around: tuple[ast.stmt, ...]) -> Change:
        """An edit of an expression, in words."""
        kind, start, end, put = edit
        low, high = self.span(node)
        after = self.text[low:start].decode() + put + self.text[end:high].decode()
        said = " → ".join(" ".join(each.split()) for each in (self.of(node), after))
        spans = [(each.lineno, each.end_lineno or each.lineno) for each in (node, *reversed(around))]
        text = self.lines[node.lineno - 1].decode().strip()
        return Change(self.file, node.lineno, kind, start, end, put, said, text, tuple(spans))

    def changes(self, node: ast.AST, around: tuple[ast.stmt, ...] = ()) -> Iterator[Change]:
        """Every change within a node."""
        if isinstance(node, ast.Assert | ast.Raise):
            return
        around = (*around, node) if isinstance(node, ast.stmt) else around
        for edits in (_operators, _branches, _calls, _constants):
            for edit in edits(self, node):
                yield self.change(getattr(node, "test", node), edit, around)
        for name, value in ast.iter_fields(node):
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST) and name not in UNCHANGED:
                    yield from self.changes(each, around)


def _operators(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A comparison at its boundary or turned round, an operator for its opposite."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        kind, sides, words = "flip comparison", (node.left, node.comparators[0]), FLIPS[type(node.ops[0])]
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        kind, sides, words = "swap operator", (node.left, node.right), SWAPS[type(node.op)]
        if any(isinstance(each, ast.JoinedStr) or isinstance(getattr(each, "value", 0), str) for each in sides):
            return  # text put together
    elif isinstance(node, ast.BoolOp):
        words = SWAPS[type(node.op)]
        kind, sides = f"{words[0]} by {words[1]}", (node.values[0], node.values[1])
    else:
        return
    start, end = source.span(sides[0])[1], source.span(sides[1])[0]
    gap = source.text[start:end].decode()
    if words[0] in gap and "#" not in gap:
        yield kind, start, end, gap.replace(words[0], words[1], 1)


def _branches(source: Source, node: ast.AST) -> Iterator[Edit]:
    """One branch whatever the condition says; a check that is left out."""
    if isinstance(node, ast.If | ast.IfExp):
        first = node.body[0] if isinstance(node, ast.If) else None
        if isinstance(first, ast.Raise):
            yield "drop check", *source.span(node.test), "False"
        else:
            yield "return early" if isinstance(first, ast.Return) else "one branch", *source.span(node.test), "True"
            yield "one branch", *source.span(node.test), "False"


def _calls(source: Source, node: ast.AST) -> Iterator[Edit]:
    """A clamp that is left out, a length or a range that is one short."""
    if not isinstance(node, ast.Call):
        return
    start, end = source.span(node)
    if isinstance(node.func, ast.Attribute) and node.func.attr in CLAMPS:
        if source.of(node.func.value) in ("torch", "np"):
            yield "drop clamp", start, end, f"({source.of(node.args[0])})"
        else:
            dot = source.text.rindex(b"." + node.func.attr.encode(), source.span(node.func.value)[1], end)
            yield "drop clamp", dot, end, ""
    elif isinstance(node.func, ast.Name) and node.func.id in ("len", "range") and node.args:
        short = node if node.func.id == "len" else node.args[min(len(node.args), 2) - 1]
        yield "off by one", *source.span(short), f"({source.of(short)} - 1)"


def _constants(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Another number, the other truth."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = node.value
        put = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 2 or 1.0
        yield "change constant", *source.span(node), repr(put)


def part_of(file: str) -> str:
    """The folder whose share and tests are a file's."""
    return next(part for part in PARTS if file.startswith(f"{part}/"))


def all_changes() -> list[Change]:
    """Every change of every file, each with a name of its own."""
    found: list[Change] = []
    times: Counter[str] = Counter()
    for part in PARTS:
        for path in sorted((ROOT / SOURCE / part).rglob("*.py")):
            file = path.relative_to(ROOT / SOURCE).as_posix()
            if part_of(file) == part:
                source = Source(file, path.read_bytes())
                for each in source.changes(ast.parse(source.text)):
                    times[each.name] += 1
                    again = times[each.name]
                    found.append(each if again == 1 else replace(each, said=f"{each.said} ({again})"))
    return found


def drawn(known: list[Change], count: int, seed: int) -> list[Change]:
    """Some of them, by the shares of the folders; each kind of change is as likely as the others."""
    draw, found = random.Random(seed), list[Change]()
    for part, (share, _) in PARTS.items():
        kinds: dict[str, list[Change]] = defaultdict(list)
        for each in known:
            if part_of(each.file) == part:
                kinds[each.kind].append(each)
        for _ in range(round(count * share)):
            left = kinds[draw.choice(sorted(name for name, some in kinds.items() if some))]
            found.append(left.pop(draw.randrange(len(left))))
    draw.shuffle(found)
    return found
