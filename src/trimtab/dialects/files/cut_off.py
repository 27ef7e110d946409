"""Commands that were cut off: a backslash that is missing, or a comment or a blank after it, ends them for the shell, though their
flags go on."""

from __future__ import annotations

import re
from dataclasses import replace

from trimtab.dialects.files.grammar import (
    Command,
    Parameter,
    Simple,
    Step,
    Text,
    Word,
)

FLAG = re.compile(r"--[A-Za-z]|[+~]{0,2}[A-Za-z_]\w*\.[\w.]*=")
"""What no command is called: a flag, or a dotted key with a value."""
ARRAY = re.compile(r"\w*(?:ARGS|ARGUMENTS|FLAGS|OPTS|OPTIONS|PARAMS)", re.IGNORECASE)
"""Nor is an array of that name, which holds the arguments of one."""
STARTS = re.compile(r"\S+\.py|-m")
"""A word of a command that starts a program of Python."""


def goes_on(steps: list[Step], command: Command, joint: str) -> bool:
    """Whether a command is the rest of the one before, which was cut off."""
    before = steps[-1].command if steps else None
    if joint != ";" or not isinstance(before, Simple) or not isinstance(command, Simple) or not before.words:
        return False
    if not command.words or command.assignments:
        return False
    first = command.words[0][0] if command.words[0] else None
    text = first.text if isinstance(first, Text) else ""
    if FLAG.match(text) or (_is_arguments(command.words[0]) and any(map(_starts_program, before.words))):
        return True
    return bool(before.cut and not (isinstance(first, Text) and text))


def _is_arguments(word: Word) -> bool:
    """Whether a word is nothing but an array that by its name holds arguments: `${GRPO_ARGS[@]}`."""
    only = word[0] if len(word) == 1 else None
    index = only.index if isinstance(only, Parameter) else None
    listed = any(isinstance(each, Text) and each.text in ("@", "*") for each in index or ())
    return isinstance(only, Parameter) and listed and ARRAY.fullmatch(only.name) is not None


def _starts_program(word: Word) -> bool:
    return len(word) == 1 and isinstance(word[0], Text) and STARTS.fullmatch(word[0].text) is not None


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
