"""Words of a shell script, read from a text at a place: quotes, parameters, substitutions, arithmetic."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable

from trimtab.dialects.sources.grammar import (
    ArithmeticExpansion,
    Parameter,
    Piece,
    Script,
    ShellError,
    Substitution,
    Text,
    Word,
)

DEEPEST = 60
LONGEST_SUM = 2000
"""Characters of one `$((…))`."""
NAME = re.compile(r"[A-Za-z_]\w*")
SPECIAL = re.compile(r"[A-Za-z_]\w*|\d|[@*#?$!_-]")
BREAKS = set(" \t\n;&|<>()")
PLAIN = re.compile(r"""[^\s;&|<>()'"\\$`]+""")
QUOTED_PLAIN = re.compile(r'[^"\\$`]+')
BACKTICKS = re.compile(r"`((?:[^`\\]|\\.)*+)`", re.DOTALL)
OPERATIONS = (
    "##",
    "%%",
    "//",
    ":-",
    ":=",
    ":+",
    ":?",
    "^^",
    ",,",
    "-",
    "=",
    "+",
    "?",
    "#",
    "%",
    "/",
    ":",
    "^",
    ",",
    "@",
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "0": "\0"}


class Reader:
    """A text and the place reached in it."""

    def __init__(self, text: str, script: Callable[[Reader, tuple[str, ...]], Script]) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self._script = script
        self._breaks = [place for place, letter in enumerate(text) if letter == "\n"]

    # ── places ──

    def line(self, at: int | None = None) -> int:
        """The number of a line."""
        return bisect.bisect_left(self._breaks, self.at if at is None else at) + 1

    def peek(self, count: int = 1) -> str:
        """The next characters."""
        return self.text[self.at : self.at + count]

    def starts(self, words: str) -> bool:
        """Whether these characters come next."""
        return self.text.startswith(words, self.at)

    def deeper(self) -> None:
        """One level down; refused where there are too many."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise ShellError(f"nested deeper than {DEEPEST} levels at line {self.line()}")

    # ── words ──

    def word(self, stops: set[str] = BREAKS) -> Word:
        """The pieces of a word up to a character that ends it; none where nothing stands here."""
        pieces: list[Piece] = []
        while self.at < len(self.text) and self.peek() not in stops:
            pieces += self._piece(stops)
        return tuple(pieces)

    def _piece(self, stops: set[str]) -> list[Piece]:
        letter = self.peek()
        if letter == "\\":
            return self._escape()
        if letter == "'":
            return [Text(self._until("'", self.at + 1), quoted=True)]
        if letter == '"':
            return self._double()
        if letter == "$":
            return self._dollar(quoted=False)
        if letter == "`":
            return [self._backticks(quoted=False)]
        found = PLAIN.match(self.text, self.at) if stops is BREAKS else None
        text = found[0] if found else letter
        self.at += len(text)
        return [Text(text)]

    def _escape(self) -> list[Piece]:
        following = self.text[self.at + 1 : self.at + 2]
        windows = following == "\r" and self.text[self.at + 2 : self.at + 3] == "\n"
        self.at += 3 if windows else 2
        return [] if following == "\n" or windows else [Text(following, quoted=True)]

    def _until(self, end: str, start: int) -> str:
        stop = self.text.find(end, start)
        if stop < 0:
            raise ShellError(f"a quote that opens in line {self.line()} and never closes")
        self.at = stop + len(end)
        return self.text[start:stop]

    def _double(self) -> list[Piece]:
        opened = self.line()
        self.at += 1
        pieces: list[Piece] = [Text("", quoted=True)]
        while self.peek() != '"':
            if not self.peek():
                raise ShellError(f"a quote that opens in line {opened} and never closes")
            pieces += self._double_quotes('$`"\\')
        self.at += 1
        return pieces

    def _double_quotes(self, escaped: str) -> list[Piece]:
        """One piece between double quotes; `escaped` are the characters a backslash takes the meaning of."""
        letter = self.peek()
        if letter == "\\":
            following = self.text[self.at + 1 : self.at + 2]
            kept = "" if following == "\n" else following if following and following in escaped else f"\\{following}"
            self.at += 2
            return [Text(kept, quoted=True)]
        if letter == "$":
            return self._dollar(quoted=True)
        if letter == "`":
            return [self._backticks(quoted=True)]
        found = QUOTED_PLAIN.match(self.text, self.at)
        self.at += len(found[0]) if found else 1
        return [Text(found[0] if found else letter, quoted=True)]

    # ── dollars ──

    def _dollar(self, quoted: bool) -> list[Piece]:
        if self.starts("$'") and not quoted:
            return [self._ansi()]
        if self.starts('$"') and not quoted:
            self.at += 1
            return self._double()
        if self.starts("$(("):
            found = self._arithmetic(quoted)
            if found is not None:
                return [found]
        if self.starts("$("):
            return [self.substitution(quoted, 2)]
        if self.starts("${"):
            return [self._braces(quoted)]
        found = SPECIAL.match(self.text, self.at + 1)
        if found is None:
            self.at += 1
            return [Text("$", quoted)]
        line = self.line()
        self.at = found.end()
        return [Parameter(found[0], line, f"${found[0]}", quoted)]

    def _ansi(self) -> Text:
        opened, place = self.line(), self.at + 2
        letters: list[str] = []
        while place < len(self.text) and self.text[place] != "'":
            letter = self.text[place]
            if letter == "\\" and place + 1 < len(self.text):
                place += 1
                letter = ESCAPES.get(self.text[place], f"\\{self.text[place]}")
            letters.append(letter)
            place += 1
        if place >= len(self.text):
            raise ShellError(f"a quote that opens in line {opened} and never closes")
        self.at = place + 1
        return Text("".join(letters), quoted=True)

    def _arithmetic(self, quoted: bool) -> ArithmeticExpansion | None:
        """`$((…))`; None where the parentheses turn out to be a subshell's."""
        start, line, within = self.at, self.line(), 0
        place, end = self.at + 3, min(len(self.text), self.at + LONGEST_SUM)
        while place < end and (within or not self.text.startswith("))", place)):
            letter = self.text[place]
            if letter in "'`;":
                return None
            within += (letter == "(") - (letter == ")")
            place += 1
        if place >= end:
            return None
        inner = self.inner(self.text[start + 3 : place].replace('"', ""))
        self.at = place + 2
        return ArithmeticExpansion(inner, line, self.text[start : self.at], quoted)

    def inner(self, text: str) -> Word:
        """A text of its own, as of a here-document or a sum, in which quotes are plain characters."""
        reader = Reader(text, self._script)
        reader.depth = self.depth
        reader.deeper()
        pieces: list[Piece] = [Text("", quoted=True)]
        while reader.peek():
            pieces += reader._double_quotes("$`\\")
        return tuple(pieces)

    def substitution(self, quoted: bool, opening: int) -> Substitution:
        """A script up to its closing parenthesis."""
        start, line = self.at, self.line()
        self.at += opening
        self.deeper()
        body = self._script(self, (")",))
        self.depth -= 1
        if self.peek() != ")":
            raise ShellError(f"a parenthesis that opens in line {line} and never closes")
        self.at += 1
        return Substitution(body, line, _short(self.text[start : self.at]), quoted)

    def _backticks(self, quoted: bool) -> Substitution:
        line = self.line()
        found = BACKTICKS.match(self.text, self.at)
        if found is None:
            raise ShellError(f"a quote that opens in line {line} and never closes")
        self.at = found.end()
        text = re.sub(r"\\([`$\\])", r"\1", found[1])
        reader = Reader(text, self._script)
        reader.depth = self.depth
        reader.deeper()
        try:
            body = self._script(reader, ())
        except ShellError:
            body = Script()
        return Substitution(body, line, _short(f"`{text}`"), quoted)

    def _braces(self, quoted: bool) -> Parameter:
        start, line = self.at, self.line()
        self.at += 2
        length = self.peek() == "#" and self.peek(2) not in ("#}", "##")
        indirect = self.peek() == "!"
        self.at += length or indirect
        found = SPECIAL.match(self.text, self.at) or re.compile(r"\d+").match(self.text, self.at)
        if found is None:
            self._closing(line)
            return Parameter("", line, _short(self.text[start : self.at]), quoted, operation="other")
        self.at = found.end()
        index = self._index()
        operation = next((each for each in OPERATIONS if self.starts(each)), "")
        self.at += len(operation)
        operand = self._operand(quoted, line)
        operation = "length" if length else "other" if indirect else operation
        return Parameter(found[0], line, _short(self.text[start : self.at]), quoted, index, operation, operand)

    def _index(self) -> Word | None:
        if self.peek() != "[":
            return None
        self.at += 1
        index = self.word({"]"})
        self.at += 1
        return index

    def _operand(self, quoted: bool, line: int) -> Word:
        """What stands between an operation and the closing brace."""
        self.deeper()
        pieces: list[Piece] = []
        while self.peek() != "}":
            if not self.peek():
                raise ShellError(f"a brace that opens in line {line} and never closes")
            if self.peek() == "'" and quoted:
                pieces.append(Text("'", quoted=True))
                self.at += 1
            else:
                pieces += self._piece({"}"})
        self.at += 1
        self.depth -= 1
        return tuple(pieces)

    def _closing(self, line: int) -> None:
        self._operand(quoted=True, line=line)


def _short(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= 60 else f"{one[:57]}…"
