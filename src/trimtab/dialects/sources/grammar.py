"""The parts of a shell script: words made of pieces, and the commands made of words."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Text:
    """Characters as they stand."""

    text: str
    quoted: bool = False


@dataclass(frozen=True)
class Parameter:
    """`$NAME`, `${NAME[INDEX]:-WORD}` and the like; `written` is the whole of it."""

    name: str
    line: int
    written: str
    quoted: bool = False
    index: Word | None = None
    operation: str = ""
    """One of `:-`, `-`, `:=`, `=`, `:+`, `+`, `#`, `##`, `%`, `%%`, `/`, `//`, `:`, `^`, `,`, `:?`; `length`, `other`."""
    operand: Word | None = None


@dataclass(frozen=True)
class ArithmeticExpansion:
    """`$((…))`."""

    text: Word
    line: int
    written: str
    quoted: bool = False


@dataclass(frozen=True)
class Substitution:
    """`$(…)`, backticks, `<(…)`: what a command would print."""

    body: Script
    line: int
    written: str
    quoted: bool = False


Piece = Text | Parameter | ArithmeticExpansion | Substitution
Word = tuple[Piece, ...]


@dataclass(frozen=True)
class Assignment:
    """`NAME=word`, `NAME+=word`, `NAME[i]=word`, `NAME=(words)`."""

    name: str
    value: Word | tuple[Word, ...]
    is_array: bool = False
    appends: bool = False
    index: Word | None = None


@dataclass(frozen=True)
class Simple:
    """Assignments, then words; with the texts handed to its input."""

    line: int
    assignments: tuple[Assignment, ...] = ()
    words: tuple[Word, ...] = ()
    inputs: tuple[Word, ...] = ()
    outputs: tuple[Word, ...] = ()
    cut: int = 0
    """The line that ends the command though more of it follows."""


@dataclass(frozen=True)
class If:
    """Conditions with what each leads to, also the patterns of a `case`; a condition of None is `else`."""

    line: int
    arms: tuple[tuple[Script | None, Script], ...]


@dataclass(frozen=True)
class Loop:
    """`for NAME in words`, or `while` and `until` with a condition."""

    line: int
    body: Script
    name: str = ""
    words: tuple[Word, ...] | None = None
    condition: Script | None = None
    until: bool = False


@dataclass(frozen=True)
class CommandGroup:
    """`{ …; }` or `( … )`."""

    line: int
    body: Script
    is_subshell: bool = False


@dataclass(frozen=True)
class Function:
    """`NAME() { …; }`."""

    line: int
    name: str
    body: Script


@dataclass(frozen=True)
class Test:
    """`[[ … ]]` or `(( … ))`."""

    line: int
    words: tuple[Word, ...]
    is_arithmetic: bool = False


Command = Simple | If | Loop | CommandGroup | Function | Test


@dataclass(frozen=True)
class Step:
    """A command, and what joins it to the one before: `;`, `&&`, `||` or `|`."""

    joint: str
    command: Command
    negated: bool = False


@dataclass(frozen=True)
class Script:
    """Commands in order."""

    steps: tuple[Step, ...] = field(default=())


class ShellError(ValueError):
    """A text that no shell would read either."""
