"""Commands that were cut off: a comment or a blank after a backslash ends them for the shell, though their flags go on."""

from __future__ import annotations

import re
from dataclasses import replace

from trimtab.dialects.files.grammar import (
    Command,
    Simple,
    Step,
    Text,
)

FLAG = re.compile(r"--[A-Za-z]|[+~]{0,2}[A-Za-z_]\w*\.[\w.]*=")
"""What no command is called: a flag, or a dotted key with a value."""


def goes_on(steps: list[Step], command: Command, joint: str) -> bool:
    """Whether a command is the rest of the one before, which a comment or a blank after a backslash cut off."""
    before = steps[-1].command if steps else None
    if joint != ";" or not isinstance(before, Simple) or not isinstance(command, Simple) or not before.words:
        return False
    if not command.words or command.assignments:
        return False
    first = command.words[0][0] if command.words[0] else None
    text = first.text if isinstance(first, Text) else ""
    return bool(FLAG.match(text)) or bool(before.cut and not (isinstance(first, Text) and text))


def with_words_of(before: Step, command: Simple) -> Step:
    """The command before with the words that were meant for it."""
    whole = before.command
    assert isinstance(whole, Simple)
    return replace(
        before,
        command=replace(
            whole,
            words=(*whole.words, *command.words),
            outputs=(*whole.outputs, *command.outputs),
            cut=whole.cut or command.line - 1,
        ),
    )
