"""The commands of a shell script, read without running any: lists, pipes, branches, loops, functions, here-documents."""

from __future__ import annotations

import re
from dataclasses import replace

from trimtab.dialects.sources.grammar import (
    Command,
    CommandGroup,
    Function,
    If,
    Loop,
    Parameter,
    Script,
    ShellError,
    Simple,
    Step,
    Test,
    Text,
    Word,
)
from trimtab.dialects.sources.shell_simple import Inputs, blank, gap, redirections, simple, skip_line, with_inputs
from trimtab.dialects.sources.shell_words import BREAKS, Reader

FUNCTION = re.compile(r"(?:function\s+([\w:.-]+)\s*(?:\(\s*\))?|([\w:.-]+)\s*\(\s*\))\s*(?=[{(\n])")
KEYWORDS = {"if", "for", "while", "until", "case", "select", "{", "[["}


def script(text: str) -> Script:
    """The commands of a whole text."""
    reader = Reader(text, _script)
    found = _script(reader, ())
    if reader.at < len(text):
        raise ShellError(f"a {reader.peek()!r} in line {reader.line()} that opens nowhere")
    return found


def _script(reader: Reader, ends: tuple[str, ...]) -> Script:
    """Commands up to one of the closing words, which is left to the caller."""
    steps: list[Step] = []
    joint = ";"
    pending: list[tuple[int, str, bool, bool]] = []
    while True:
        blank(reader)
        letter = reader.peek()
        if letter == "#":
            skip_line(reader)
        elif letter == "\n":
            reader.at += 1
            steps = with_inputs(reader, steps, pending)
            joint = ";" if joint == "&" else joint
        elif not letter or (letter == ")" and ")" in ends) or _closes(reader, ends):
            return Script(tuple(steps))
        elif letter in ";&|":
            joint = _joint(reader)
            if joint == ";;" and ";;" in ends:
                reader.at -= 2
                return Script(tuple(steps))
        elif letter == ")":
            return Script(tuple(steps))
        else:
            negated = bool(re.compile(r"!\s").match(reader.text, reader.at))
            reader.at += negated
            blank(reader)
            before = reader.at
            command, inputs = _command(reader)
            if reader.at == before:
                raise ShellError(f"a {reader.peek()!r} in line {reader.line()} that no command begins with")
            if isinstance(command, Simple) and goes_on(steps, command, joint):
                steps[-1] = with_words_of(steps[-1], command)
            else:
                steps.append(Step(joint if steps else ";", command, negated))
            pending += [(len(steps) - 1, *each) for each in inputs]
            joint = ";"


def _closes(reader: Reader, ends: tuple[str, ...]) -> bool:
    return any(
        reader.starts(end)
        and (end in (";;", ")") or reader.text[reader.at + len(end) : reader.at + len(end) + 1] in " \t\n;&|)\r")
        for end in ends
    )


def _joint(reader: Reader) -> str:
    for sign in (";;&", ";;", ";&", "&&", "||", "|&"):
        if reader.starts(sign):
            reader.at += len(sign)
            return {";;&": ";;", ";&": ";;", "|&": "|"}.get(sign, sign)
    reader.at += 1
    return {"&": ";"}.get(reader.text[reader.at - 1], reader.text[reader.at - 1])


# ── commands ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _command(reader: Reader) -> tuple[Command, Inputs]:
    line = reader.line()
    found = FUNCTION.match(reader.text, reader.at)
    if found and (found[1] or found[2]) not in KEYWORDS:
        reader.at = found.end()
        gap(reader)
        body, _ = _compound(reader, line)
        return Function(line, found[1] or found[2], body.body if isinstance(body, CommandGroup) else Script()), []
    if reader.starts("((") or reader.peek() in "({" or _keyword(reader) in KEYWORDS:
        return _compound(reader, line)
    return simple(reader, line)


def _keyword(reader: Reader) -> str:
    found = re.compile(r"(\w+|\{|\[\[)(?=[\s;]|$)").match(reader.text, reader.at)
    return found[1] if found else ""


def _compound(reader: Reader, line: int) -> tuple[Command, Inputs]:
    reader.deeper()
    if _is_sum(reader):
        found: Command = _sum(reader, line)
    elif reader.peek() == "(":
        reader.at += 1
        found = CommandGroup(line, _block(reader, ")"), is_subshell=True)
    else:
        word = _keyword(reader)
        reader.at += len(word)
        parse = {"{": _braces, "if": _if, "for": _for, "select": _for, "while": _while, "until": _until, "case": _case}
        found = parse.get(word, _test)(reader, line)
    reader.depth -= 1
    return found, redirections(reader)[1]


def _is_sum(reader: Reader) -> bool:
    """`((…))` on one line; over several it is a subshell in a subshell."""
    end = reader.text.find("))", reader.at)
    return reader.starts("((") and end >= 0 and "\n" not in reader.text[reader.at : min(end, reader.at + 500)]


def _block(reader: Reader, *ends: str) -> Script:
    """Commands up to one of these words, which is taken."""
    line = reader.line()
    body = _script(reader, ends)
    end = next((each for each in ends if reader.starts(each)), None)
    if end is None:
        raise ShellError(f"a block that opens in line {line} and has no {ends[0]!r}")
    reader.at += len(end)
    return body


def _braces(reader: Reader, line: int) -> Command:
    return CommandGroup(line, _block(reader, "}"))


def _sum(reader: Reader, line: int) -> Command:
    stop = reader.text.find("))", reader.at)
    if stop < 0:
        raise ShellError(f"a parenthesis that opens in line {line} and never closes")
    words = (reader.inner(reader.text[reader.at + 2 : stop].replace('"', "")),)
    reader.at = stop + 2
    return Test(line, words, is_arithmetic=True)


def _test(reader: Reader, line: int) -> Command:
    words: list[Word] = []
    while True:
        gap(reader)
        if not reader.peek():
            raise ShellError(f"a [[ in line {line} that never closes")
        if reader.starts("]]"):
            reader.at += 2
            return Test(line, tuple(words))
        before = reader.at
        word = reader.word(BREAKS - {"(", ")", "|"} if words and _is_match(words[-1]) else BREAKS)
        if reader.at == before:
            sign = reader.peek(2) if reader.peek(2) in ("&&", "||") else reader.peek()
            reader.at += len(sign)
            word = (Text(sign),)
        words.append(word)


def _is_match(word: Word) -> bool:
    return len(word) == 1 and isinstance(word[0], Text) and word[0].text == "=~"


def _if(reader: Reader, line: int) -> Command:
    arms: list[tuple[Script | None, Script]] = []
    while True:
        condition = _block(reader, "then")
        body = _script(reader, ("elif", "else", "fi"))
        arms.append((condition, body))
        if reader.starts("elif"):
            reader.at += 4
            continue
        if reader.starts("else"):
            reader.at += 4
            arms.append((None, _block(reader, "fi")))
            return If(line, tuple(arms))
        if reader.starts("fi"):
            reader.at += 2
            return If(line, tuple(arms))
        raise ShellError(f"an if in line {line} that has no fi")


def _for(reader: Reader, line: int) -> Command:
    blank(reader)
    words: list[Word] | None = None
    name = ""
    if reader.starts("(("):
        _sum(reader, line)
    else:
        name = "".join(piece.text for piece in reader.word() if isinstance(piece, Text))
        gap(reader)
        if _keyword(reader) == "in":
            reader.at += 2
            words = []
            blank(reader)
            while reader.peek() not in ("\n", ";", ""):
                before = reader.at
                words.append(reader.word())
                if reader.at == before:
                    raise ShellError(f"a {reader.peek()!r} in line {reader.line()} that no word begins with")
                blank(reader)
    _separator(reader)
    return Loop(line, _do(reader), name=name, words=None if words is None else tuple(words))


def _separator(reader: Reader) -> None:
    gap(reader)
    if reader.peek() == ";":
        reader.at += 1
    gap(reader)


def _do(reader: Reader) -> Script:
    if reader.peek() == "{":
        reader.at += 1
        return _block(reader, "}")
    if _keyword(reader) != "do":
        raise ShellError(f"a loop that needs `do` in line {reader.line()}")
    reader.at += 2
    return _block(reader, "done")


def _while(reader: Reader, line: int, until: bool = False) -> Command:
    condition = _block(reader, "do")
    return Loop(line, _block(reader, "done"), condition=condition, until=until)


def _until(reader: Reader, line: int) -> Command:
    return _while(reader, line, until=True)


def _case(reader: Reader, line: int) -> Command:
    blank(reader)
    subject = reader.word()
    gap(reader)
    reader.at += len("in")
    arms: list[tuple[Script | None, Script]] = []
    while True:
        gap(reader)
        if not reader.peek():
            raise ShellError(f"a case in line {line} that has no esac")
        if _keyword(reader) == "esac" or reader.starts("esac"):
            reader.at += 4
            return If(line, tuple(arms))
        reader.at += reader.peek() == "("
        patterns = [_pattern(reader)]
        while reader.peek() == "|":
            reader.at += 1
            patterns.append(_pattern(reader))
        if reader.peek() != ")":
            raise ShellError(f"a pattern in line {reader.line()} that has no ')'")
        reader.at += 1
        arms.append((_is_one_of(subject, patterns, line), _script(reader, (";;", "esac"))))
        reader.at += 2 if reader.starts(";;") else 0


def _is_one_of(subject: Word, patterns: list[Word], line: int) -> Script | None:
    """The condition that patterns stand for; None for `*`. A letter in front keeps words from being signs of a test."""
    if (Text("*"),) in patterns:
        return None
    tests = [Test(line, ((Text("="), *subject), (Text("=="),), (Text("="), *each))) for each in patterns]
    return Script(tuple(Step("||" if place else ";", each) for place, each in enumerate(tests)))


def _pattern(reader: Reader) -> Word:
    blank(reader)
    found = reader.word()
    blank(reader)
    return found


# ── commands that are cut off ─────────────────────────────────────────────────────────────────────────────────────────
# A backslash that is missing, or a comment or a blank after it, ends them for the shell, though their flags go on.

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
