"""What is found on the way through a script: commands, functions, arrays; counted, so that no script is walked without end."""

from __future__ import annotations

from dataclasses import dataclass, field

from trimtab.dialects.files.expansion import Scope
from trimtab.dialects.files.grammar import (
    Script,
)
from trimtab.dialects.files.shell_error import ShellError
from trimtab.dialects.files.unknown import Holes

MOST_STEPS = 20_000
MOST_CALLS = 20
"""Times that one function is walked through."""
DEEPEST = 200
"""Levels of blocks, functions counted as 20 and texts run as scripts as 10; what lies deeper is not walked."""
MOST_WORDS = 300_000
"""Words handled, copies of variables and long texts counted with them."""


@dataclass(frozen=True)
class Started:
    """A command that the script would start."""

    words: tuple[str, ...]
    line: int
    cut: int = 0
    """The line that ends it early for the shell."""
    values: dict[str, str] = field(default_factory=dict[str, str])
    """Variables set for it alone."""


@dataclass
class Walk:
    """What was found on the way through a script."""

    holes: Holes
    started: list[Started] = field(default_factory=list[Started])
    functions: dict[str, Script] = field(default_factory=dict[str, Script])
    called: dict[str, int] = field(default_factory=dict[str, int])
    arrays: dict[str, Started] = field(default_factory=dict[str, Started])
    """Every array as last set, for files that only set some, and for those that hold a command somebody else starts."""
    exported: dict[str, str] = field(default_factory=dict[str, str])
    """Variables that every command is given."""
    sourced: list[str] = field(default_factory=list[str])
    steps: int = 0
    count: int = 0
    depth: int = 0

    def charge(self, found: list[str]) -> list[str]:
        """The same words, counted; refused where a script makes too many."""
        self.count += len(found) + sum(map(len, found)) // 64
        if self.count > MOST_WORDS:
            raise ShellError("a text that repeats itself without end")
        return found

    def apart(self, scope: Scope) -> Scope:
        """A copy of the variables, counted."""
        self.charge(list(scope.values))
        return scope.copy()
