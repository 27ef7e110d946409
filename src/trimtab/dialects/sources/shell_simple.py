"""One simple command of a script: assignments, words, redirections; and where it stops."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from trimtab.dialects.sources.grammar import Assignment, Command, ShellError, Simple, Step, Text, Word
from trimtab.dialects.sources.shell_words import Reader

ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?=|\[)")
REDIRECTION = re.compile(r"(\d*|\{\w+\}|&)(<<<|<<-|<<|>>|<>|>\||>&|<&|&>>|&>|>|<)")
DECLARING = {"export", "local", "readonly", "declare", "typeset"}
BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
Inputs = list[tuple[str, bool, bool]]
"""Here-documents begun: their end, whether they are plain, whether tabs in front are left out."""


def blank(reader: Reader) -> None:
    """Past blanks and continued line ends."""
    found = BLANK.match(reader.text, reader.at)
    if found:
        reader.at = found.end()


def skip_line(reader: Reader) -> None:
    """Past what is left of a line."""
    end = reader.text.find("\n", reader.at)
    reader.at = len(reader.text) if end < 0 else end


def gap(reader: Reader) -> None:
    """Past blanks, line ends and comments."""
    while True:
        blank(reader)
        if reader.peek() == "#":
            skip_line(reader)
        elif reader.peek() == "\n":
            reader.at += 1
        else:
            return


def simple(reader: Reader, line: int) -> tuple[Command, Inputs]:
    """The command that begins here, up to what ends it."""
    assignments: list[Assignment] = []
    words: list[Word] = []
    inputs: Inputs = []
    here: list[Word] = []
    outputs: list[Word] = []
    while True:
        blank(reader)
        letter = reader.peek()
        if REDIRECTION.match(reader.text, reader.at) and not reader.starts("<(") and not reader.starts(">("):
            found = redirections(reader)
            inputs += found[1]
            here += found[0]
            outputs += found[2]
        elif not letter or letter in "\n;&|)#":
            cut = reader.line() if letter == "#" and words and _cuts(reader) else 0
            return Simple(line, tuple(assignments), tuple(words), tuple(here), tuple(outputs), cut), inputs
        elif reader.starts("<(") or reader.starts(">("):
            words.append((reader.substitution(False, 2),))
        elif letter == "(":
            raise ShellError(f"a '(' in line {reader.line()} that no command begins with")
        else:
            found = _assignment(reader) if not words or _declares(words) else None
            if found is not None:
                assignments.append(found)
            else:
                words.append(reader.word())


def _cuts(reader: Reader) -> bool:
    """Whether a comment here stands below a line that ended in a backslash and above one that goes on, so that it ends the command."""
    start = reader.text.rfind("\n", 0, reader.at)
    if start < 1 or reader.text[start + 1 : reader.at].strip():
        return False
    below = next((line for line in _lines(reader) if not line.startswith("#")), "")
    return bool(below) and (reader.text[start - 1] == "\\" or reader.text[max(start - 2, 0) : start] == "\\\r")


def _lines(reader: Reader) -> Iterator[str]:
    """The lines from here on, one at a time: a script may be long, and what follows a comment is near."""
    at = reader.at
    while at < len(reader.text):
        end = reader.text.find("\n", at)
        end = end if end >= 0 else len(reader.text)
        yield reader.text[at:end].strip()
        at = end + 1


def _declares(words: list[Word]) -> bool:
    first = words[0]
    return len(first) == 1 and isinstance(first[0], Text) and first[0].text in DECLARING


def _assignment(reader: Reader) -> Assignment | None:
    found = ASSIGNED.match(reader.text, reader.at)
    if found is None:
        return None
    start = reader.at
    reader.at = found.end(1)
    index = None
    if found[2] == "[":
        reader.at += 1
        index = reader.word({"]", "\n"})
        if not re.compile(r"\]\+?=").match(reader.text, reader.at):
            reader.at = start
            return None
        reader.at += 1
    appends = reader.peek() == "+"
    reader.at += 2 if appends else 1
    if reader.peek() == "(":
        return Assignment(found[1], _array(reader), is_array=True, appends=appends)
    return Assignment(found[1], reader.word(), appends=appends, index=index)


def _array(reader: Reader) -> tuple[Word, ...]:
    line = reader.line()
    reader.at += 1
    words: list[Word] = []
    while True:
        gap(reader)
        if not reader.peek():
            raise ShellError(f"an array that opens in line {line} and never closes")
        if reader.peek() == ")":
            reader.at += 1
            return tuple(words)
        before = reader.at
        word = reader.word()
        if reader.at == before:  # <(…), or an operator that a shell would refuse
            reader.at += 1
        else:
            words.append(word)


def redirections(reader: Reader) -> tuple[list[Word], Inputs, list[Word]]:
    """Texts handed to the input, here-documents begun, and files written to."""
    here: list[Word] = []
    outputs: list[Word] = []
    inputs: Inputs = []
    while True:
        blank(reader)
        found = REDIRECTION.match(reader.text, reader.at)
        if found is None or reader.starts("<(") or reader.starts(">("):
            return here, inputs, outputs
        reader.at = found.end()
        blank(reader)
        if found[2] in ("<<", "<<-"):
            name = reader.word()
            plain = "".join(piece.text for piece in name if isinstance(piece, Text))
            is_plain = any(isinstance(piece, Text) and piece.quoted for piece in name)
            inputs.append((plain, is_plain, found[2] == "<<-"))
            continue
        if reader.starts("<(") or reader.starts(">("):
            word: Word = (reader.substitution(False, 2),)
        else:
            reader.at += reader.peek() == "&"
            word = reader.word()
        if found[2] == "<<<":
            here.append(word)
        elif ">" in found[2]:
            outputs.append(word)


# ── here-documents ────────────────────────────────────────────────────────────────────────────────────────────────────
# Their bodies begin on the line after the commands that read them.


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
