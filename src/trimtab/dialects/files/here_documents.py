"""The bodies of here-documents, which begin on the line after the commands that read them."""

from __future__ import annotations

from dataclasses import replace

from trimtab.dialects.files.grammar import (
    Simple,
    Step,
    Text,
    Word,
)
from trimtab.dialects.files.shell_words import Reader


def with_inputs(reader: Reader, steps: list[Step], pending: list[tuple[int, str, bool, bool]]) -> list[Step]:
    """The bodies of here-documents begun on the line that just ended, given to their commands."""
    for place, end, is_plain, is_indented in pending:
        body = _document(reader, end, is_indented)
        command = steps[place].command
        word: Word = (Text(body, quoted=True),) if is_plain else reader.inner(body)
        if isinstance(command, Simple):
            steps[place] = replace(steps[place], command=replace(command, inputs=(*command.inputs, word)))
    pending.clear()
    return steps


def _document(reader: Reader, end: str, is_indented: bool) -> str:
    lines: list[str] = []
    while reader.at < len(reader.text):
        stop = reader.text.find("\n", reader.at)
        line = reader.text[reader.at : len(reader.text) if stop < 0 else stop]
        reader.at = len(reader.text) if stop < 0 else stop + 1
        own = line.lstrip("\t") if is_indented else line
        if own.rstrip("\r") == end or (own.strip() == end and not is_indented and own.rstrip() == end):
            reader.at = max(reader.at - 1, 0) if stop >= 0 else reader.at
            break
        lines.append(own)
    return "\n".join(lines) + ("\n" if lines else "")
