"""What a file does not say: a value known only by the name it depends on, and how text carries it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

START, END = "\ue000", "\ue001"
"""Marks round the number of a hole: a place in a text whose content the file does not say."""
HOLE = re.compile(f"{START}(\\d+){END}")

UNSET = "which the file does not set"


@dataclass(frozen=True)
class Unknown:
    """A value that depends on something the file does not set."""

    name: str
    """What it depends on, as written: `$LR`, `$(nproc)`, `${oc.env:X}`."""
    line: int | None = None
    why: str = UNSET
    several: bool = False
    """Whether it may stand for any number of words."""
    maybe: tuple[str, ...] = ()
    """Words that it stands for in one case and not in another."""
    written: str = field(default="", compare=False, repr=False)
    """The whole text that it stands in: `$BASE/own-model-fp8`."""

    def __str__(self) -> str:
        place = f" (line {self.line})" if self.line else ""
        return f"{self.name}{place}, {self.why}"


@dataclass
class Holes:
    """The holes of one file, by number."""

    known: list[Unknown] = field(default_factory=list[Unknown])
    work: int = 0
    """What it took so far to work values out, by whoever counts it."""

    def hole(
        self, name: str, line: int | None, why: str = UNSET, several: bool = False, maybe: tuple[str, ...] = ()
    ) -> str:
        """A mark that stands in a text for something unknown."""
        self.known.append(Unknown(name, line, why, several, maybe))
        return f"{START}{len(self.known) - 1}{END}"

    def of(self, text: str) -> Unknown | None:
        """The first thing unknown in a text, with the text."""
        found = HOLE.search(text)
        if found is None or int(found[1]) >= len(self.known):
            return None
        return replace(self.known[int(found[1])], written=self.with_names(text))

    def with_names(self, text: str) -> str:
        """The text with names in place of marks."""
        return HOLE.sub(lambda found: self.known[int(found[1])].name if int(found[1]) < len(self.known) else "", text)


def without_marks(text: str) -> str:
    """A text of the user's, from which nothing can pose as a hole."""
    return text.replace(START, "").replace(END, "")


def is_open(value: Any) -> bool:
    """Whether a value is unknown, or a reference that was not followed."""
    return isinstance(value, Unknown) or (isinstance(value, str) and "${" in value)
