"""What a word of a script stands for, as far as the script itself says; the rest becomes holes."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from trimtab.dialects.sources.conditions import evaluate
from trimtab.dialects.sources.grammar import ArithmeticExpansion, Parameter, Piece, ShellError, Substitution, Text, Word
from trimtab.dialects.sources.unknown import HOLE, Holes

LONGEST = 100_000
"""Characters of one value, and words of one command: more is a script that doubles itself."""
MOST_CUT = 20_000_000
"""Letters held against patterns that cut a value off."""
Value = str | list[str]
Printed = Callable[[Substitution, "Scope"], str | None]


@dataclass
class Scope:
    """The variables a script has set so far. It is read as launched without arguments and with an empty environment."""

    holes: Holes
    values: dict[str, Value] = field(default_factory=dict[str, Value])
    arguments: list[str] | None = None
    """Those of a function that is being read; None for the script's own."""
    printed: Printed = lambda _, __: None

    def copy(self) -> Scope:
        """The same, to be changed apart."""
        values = {name: list(value) if isinstance(value, list) else value for name, value in self.values.items()}
        return Scope(self.holes, values, self.arguments, self.printed)

    def text(self, name: str) -> str | None:
        """The value of a variable; None where the script does not set it."""
        if name == "#":
            return str(len(self.arguments or []))
        if name.isdigit():
            given = self.arguments or []
            return given[int(name) - 1] if 0 < int(name) <= len(given) else None
        if name in ("@", "*"):
            return " ".join(self.arguments or [])
        value = self.values.get(name)
        return (value[0] if value else "") if isinstance(value, list) else value


@dataclass
class _Line:
    """Words that are put together piece by piece."""

    found: list[str] = field(default_factory=list[str])
    current: str | None = None
    """The word that the next piece may still add to."""
    gone: bool = False
    """Whether a list of none stood in it."""

    def add(self, text: str) -> None:
        """Text that goes on with the word as it is: written out, or quoted."""
        self.current = (self.current or "") + text

    def add_several(self, several: list[str]) -> None:
        """Words of a list: the first goes on with the word before, the last may be gone on with."""
        self.gone = self.gone or not several
        if several:
            *whole, self.current = [(self.current or "") + several[0], *several[1:]]
            self.found += whole

    def add_split(self, text: str) -> None:
        """Text that blanks split into words, at its ends too."""
        parts = text.split()
        if not parts:
            return
        if text[0].isspace():
            self._end_word()
        *whole, self.current = [(self.current or "") + parts[0], *parts[1:]]
        self.found += whole
        if text[-1].isspace():
            self._end_word()

    def words(self) -> list[str]:
        """All of them; one of which nothing is left is none."""
        if not (self.gone and not self.current):
            self._end_word()
        return self.found

    def _end_word(self) -> None:
        self.found += [] if self.current is None else [self.current]
        self.current = None


def words(word: Word, scope: Scope) -> list[str]:
    """The words that one word of a script becomes: an array is several, a quoted text one, an unset `$@` none."""
    line = _Line()
    for piece in word:
        several = _several(piece, scope)
        if several is not None:
            line.add_several(several)
        elif piece.quoted or isinstance(piece, Text):
            line.add(_text(piece, scope))
        else:
            line.add_split(_text(piece, scope))
    return [or_hole(each, scope) for each in _brace_words(line.words()[:LONGEST])]


def expand_to_text(word: Word, scope: Scope) -> str:
    """What a word stands for as one text, as on the right of `=`."""
    parts: list[str] = []
    for piece in word:
        several = _several(piece, scope)
        parts.append(" ".join(several) if several is not None else _text(piece, scope))
    return or_hole("".join(parts), scope)


def or_hole(value: str, scope: Scope) -> str:
    """A value, or a hole where it grew out of all measure."""
    return value if len(value) <= LONGEST else scope.holes.hole("a value longer than 100000 characters", None)


def _brace_words(found: list[str]) -> list[str]:
    """`{a,b}` as two words, where a word is nothing else."""
    match = [re.fullmatch(r"([\w./-]*)\{(\d+)\.\.(\d+)\}", each) for each in found]
    return [
        one
        for each, pattern in zip(found, match, strict=True)
        for one in (
            [
                f"{pattern[1]}{place}"
                for place in range(int(pattern[2]), min(int(pattern[3]), int(pattern[2]) + 1000) + 1)
            ]
            if pattern and len(pattern[2]) < 9 and len(pattern[3]) < 9
            else [each]
        )
    ]


def _several(piece: Piece, scope: Scope) -> list[str] | None:
    """The words of `${A[@]}`, `${A[*]}`, `$@`; None for what is one text."""
    if not isinstance(piece, Parameter):
        return None
    index = "".join(each.text for each in piece.index or () if isinstance(each, Text))
    listed = piece.name in ("@", "*") if not piece.index else index in ("@", "*")
    if not listed or piece.operation == "length":
        return None
    otherwise = None if piece.name in ("@", "*") else _in_place_of(piece, scope)
    if otherwise is not None:
        return otherwise
    found = _own_arguments(piece, scope) if piece.name in ("@", "*") else _elements(piece, scope)
    return [" ".join(found)] if piece.quoted and "*" in (index, piece.name) else found


def _own_arguments(piece: Parameter, scope: Scope) -> list[str]:
    """`$@`, or `${@:2}` from one of them on."""
    found = list(scope.arguments or [])
    if piece.operation == ":" and piece.operand:
        start = expand_to_text(piece.operand, scope).partition(":")[0].strip()
        found = found[int(start) - 1 :] if start.isdigit() and int(start) > 0 else found
    return found


def _in_place_of(piece: Parameter, scope: Scope) -> list[str] | None:
    """What stands for an array that is not set, or that an operation replaces; None where its own words do."""
    if piece.name in scope.values:
        if piece.operation in (":+", "+"):
            return words(piece.operand or (), scope)
        if piece.operation in ("", ":-", "-"):
            return None
        return [scope.holes.hole(piece.written, piece.line, "which is not worked out here", several=True)]
    if piece.operation in (":-", "-"):
        return words(piece.operand or (), scope)
    return [] if piece.operation in (":+", "+") else [scope.holes.hole(piece.written, piece.line, several=True)]


def _elements(piece: Parameter, scope: Scope) -> list[str]:
    """The words of an array, split at blanks where nothing quotes it."""
    value = scope.values[piece.name]
    found = list(value) if isinstance(value, list) else [value]
    return found if piece.quoted else [part for each in found for part in each.split()]


def _text(piece: Piece, scope: Scope) -> str:
    if isinstance(piece, Text):
        return piece.text
    if isinstance(piece, ArithmeticExpansion):
        inner = expand_to_text(piece.text, scope)
        if HOLE.search(inner):
            return scope.holes.hole(_first(inner, scope), piece.line)
        found = evaluate(inner, scope.text)
        return str(found) if found is not None else scope.holes.hole(_cause(inner, scope) or piece.written, piece.line)
    if isinstance(piece, Substitution):
        printed = scope.printed(piece, scope)
        return scope.holes.hole(piece.written, piece.line) if printed is None else printed.rstrip("\n")
    return _parameter(piece, scope)


def _first(inner: str, scope: Scope) -> str:
    found = scope.holes.of(inner)
    return found.name if found else inner


def _cause(inner: str, scope: Scope) -> str | None:
    """The first name in an expression that the script does not set."""
    return next((f"${name}" for name in re.findall(r"[A-Za-z_]\w*", inner) if scope.text(name) is None), None)


def _parameter(piece: Parameter, scope: Scope) -> str:
    value = _element(piece, scope)
    operand = piece.operand or ()
    if piece.operation in (":-", "-", ":=", "="):
        if value is not None and (value or not piece.operation.startswith(":")):
            return value
        found = expand_to_text(operand, scope)
        if "=" in piece.operation and piece.name.isidentifier():
            scope.values[piece.name] = found
        return found
    if piece.operation in (":+", "+"):
        return expand_to_text(operand, scope) if value else ""
    if value is None:
        return scope.holes.hole(f"${piece.name}" if piece.name else piece.written, piece.line)
    if piece.operation in ("", ":?", "?"):
        return value
    done = _substitute(piece, value, scope)
    return scope.holes.hole(piece.written, piece.line, "which is not worked out here") if done is None else done


def _element(piece: Parameter, scope: Scope) -> str | None:
    if piece.index is None:
        return scope.text(piece.name)
    value = scope.values.get(piece.name)
    index = expand_to_text(piece.index, scope)
    if piece.operation == "length" and isinstance(value, list):
        return str(len(value))
    if not isinstance(value, list) or not index.isdigit():
        return value if isinstance(value, str) and index == "0" else None
    return value[int(index)] if int(index) < len(value) else None


def _substitute(piece: Parameter, value: str, scope: Scope) -> str | None:
    """A value with a pattern cut off or replaced, or in other letters; None for forms that are not worked out."""
    if piece.operation == "length":
        return value if piece.index is not None else str(len(value))
    if HOLE.search(value) or piece.operation == "other" or len(value) > 2000:
        return None
    pattern = expand_to_text(piece.operand or (), scope)
    if HOLE.search(pattern):
        return None
    if piece.operation in ("#", "##", "%", "%%"):
        return _cut(value, pattern, piece.operation, scope.holes)
    if piece.operation in ("/", "//"):
        wanted, _, new = pattern.partition("/")
        if not wanted or re.search(r"[*?\[\\]", wanted):
            return None
        return value.replace(wanted, new, -1 if piece.operation == "//" else 1)
    cases = {
        "^^": value.upper(),
        ",,": value.lower(),
        "^": value[:1].upper() + value[1:],
        ",": value[:1].lower() + value[1:],
    }
    return cases.get(piece.operation) if not pattern else None


def _cut(value: str, pattern: str, operation: str, holes: Holes) -> str:
    stars = 1 + pattern.count("*")
    holes.work += min(len(value) + 1, 400) * len(value) * stars
    if holes.work > MOST_CUT:
        raise ShellError(f"more than {MOST_CUT} letters held against patterns that cut a value off")
    ends = (
        [value[:end] for end in range(len(value) + 1)]
        if "#" in operation
        else [value[start:] for start in range(len(value), -1, -1)]
    )
    order = ends if len(operation) == 1 else ends[::-1]
    for each in order[:400]:
        if fnmatch.fnmatchcase(each, pattern):
            return value[len(each) :] if "#" in operation else value[: len(value) - len(each)]
    return value
