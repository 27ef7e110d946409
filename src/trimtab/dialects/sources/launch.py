"""The settings of a launch script: the command that carries them, its words as keys, and what it leaves open."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trimtab.dialects.reading import Finding
from trimtab.dialects.registry import COMMANDS, SIGNATURES
from trimtab.dialects.sources.effects import Started, Walk
from trimtab.dialects.sources.flags import adds_words, flag_name, handed_by_ray, keys_of
from trimtab.dialects.sources.formats import SHELL
from trimtab.dialects.sources.purpose import DISTILLATION, answers_clients, purpose_of
from trimtab.dialects.sources.unknown import Holes, Unknown, without_marks
from trimtab.dialects.sources.walk import walk_script

LAUNCHER = re.compile(
    rf"(?:.*/)?(python[\d.]*|torchrun|accelerate|deepspeed|ray|uv|srun|{'|'.join(name for name, below in COMMANDS.items() if below)})"
)
PROGRAMS = re.compile(
    rf"{LAUNCHER.pattern}|(?:.*/)?({'|'.join(COMMANDS)}|uvx|sbatch|nohup|env|time|timeout|numactl|nsys|mpirun|horovodrun"
    r"|torch\.distributed\.(?:run|launch)|pipenv|poetry|conda|docker|kubectl|xargs|modal|sky|gcloud|bash|sh|exec|command|stdbuf"
    r"|script|tmux|screen|\.?/?\S+\.py)"
)
MARK = "\0"
MOST_ARRAYS, LONGEST = 60, 2_000_000
"""Arrays, and characters of commands, beyond which it is not looked up which command takes which."""
PYTHON_FILE = re.compile(r"[^\s=]*\.py")
PARENTS = ("config", "config_name", "config_path", "config_file", "custom_config_path", "config_yaml")
"""Flags that name a file of settings the command builds on."""
Score = Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True)
class NamedFile:
    """A file of settings that a command names."""

    flag: str
    name: str
    folder: str = ""
    """Where it is said to stand, if that is said apart."""


@dataclass(frozen=True)
class Launch:
    """One command with its settings."""

    keys: dict[str, Any]
    line: int
    program: str
    """The program or module that is started."""
    findings: tuple[Finding, ...] = ()
    parents: tuple[NamedFile, ...] = ()
    """Files of settings that it names."""
    is_loose: bool = False
    """Whether these are flags of arrays that no command of the file is seen to take."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that it is given and that the script uses nowhere itself."""


def launches(text: str, holes: Holes | None = None) -> list[Launch]:
    """Every command of a script that carries settings; and the flags of arrays and words that no command is seen to take.

    `holes`: those of the file that the text comes from, which may have some of them.
    """
    text = without_marks(text) if holes is None else text
    holes = Holes() if holes is None else holes
    walk = walk_script(text, holes)
    unused = _unused_arrays(walk)
    commands = [each for each in unused.values() if _is_command(each)]
    walk.exported = {name: value for name, value in walk.exported.items() if not _is_used(name, text)}
    found = [_launch(each, walk) for each in (*walk.started, *commands) if each in commands or _is_program(each)]
    found = [each for each in found if each.keys or each.program]
    listed = [word for each in unused.values() if each not in commands for word in each.words]
    arrays = keys_of(listed, holes)
    if any(each.keys for each in found):
        return [*found, *([_loose(arrays, unused)] if arrays else [])]
    loose = keys_of(
        [word for each in walk.started for word in each.words if "=" in word or word.startswith("-")], holes
    )
    return [
        *found,
        *([Launch(arrays, 1, "")] if arrays else []),
        *([Launch(loose, 1, "")] if loose and not arrays else []),
    ]


def _is_used(name: str, text: str) -> bool:
    """Whether a script looks a variable up itself."""
    return re.search(rf"\$\{{?[!#]?{re.escape(name)}\b", text) is not None


def _unused_arrays(walk: Walk) -> dict[str, Started]:
    """The arrays of a script whose words stand in no command it starts, nor in another of them."""
    held = {name: MARK.join(("", *each.words, "")) for name, each in walk.arrays.items() if each.words}
    taken = [MARK.join(("", *each.words, "")) for each in walk.started] if held else []
    if len(held) > MOST_ARRAYS or sum(map(len, taken)) > LONGEST:
        return {}
    return {
        name: walk.arrays[name]
        for name, words in held.items()
        if not any(words in each for each in taken)
        and not any(words in each and words != each for each in held.values())
    }


def _is_command(each: Started) -> bool:
    """Whether the words of an array are a whole command, which is then handed on: `CMD=(python3 train.py …)`."""
    return len(each.words) > 1 and bool(LAUNCHER.fullmatch(each.words[0])) and _is_program(each)


def _loose(keys: dict[str, Any], arrays: Mapping[str, Started]) -> Launch:
    named = ", ".join(arrays)
    said = Finding(
        named, "surprise", "No command in the file was seen to take these flags; they are read as if one did."
    )
    return Launch(keys, min(each.line for each in arrays.values()), "", (said,), is_loose=True)


def best(found: Sequence[Launch], score: Score) -> tuple[Launch, tuple[Finding, ...]]:
    """The command with most keys of the framework, and what to say where it was not the only one."""
    seen = [each for each in found if not each.is_loose]
    found = seen if any(score(each.keys) for each in seen) or not any(score(each.keys) for each in found) else found
    ranked = sorted(found, key=lambda each: (purpose_of(each.program) is not None, -score(each.keys), -len(each.keys)))
    taken, rest = ranked[0], [each for each in ranked[1:] if score(each.keys) > 0]
    others = [each for each in rest if _own_settings(each, score) != _own_settings(taken, score)]
    if not others:
        return taken, taken.findings
    lines = ", ".join(str(each.line) for each in sorted(others, key=lambda each: each.line)[:5])
    said = Finding(
        taken.program or "command",
        "note",
        f"{len(others) + 1} commands in the file carry settings. The one on line {taken.line} has the most and is read; "
        f"{'those' if len(others) > 1 else 'the one'} on line {lines} {'are' if len(others) > 1 else 'is'} not.",
    )
    return taken, (*taken.findings, said)


def _own_settings(each: Launch, score: Score) -> dict[str, Any]:
    """The settings of a command that are the framework's."""
    return {key: value for key, value in each.keys.items() if score({key: value})}


def _is_program(each: Started) -> bool:
    return (
        any(PROGRAMS.fullmatch(word) for word in each.words[:3])
        or any(PYTHON_FILE.fullmatch(word) for word in each.words)
        or each.words[0].startswith("\ue000")
    )


def _launch(each: Started, walk: Walk) -> Launch:
    program, rest = _arguments(each.words)
    keys = keys_of(rest, walk.holes)
    parents = _parents(rest, keys, walk.holes)
    findings = (*_findings(each, rest, walk), *_said_of(walk.holes.with_names(program)))
    environment = {**walk.exported, **handed_by_ray(each.words), **each.values}
    return Launch(keys, each.line, walk.holes.with_names(program), findings, parents, environment=environment)


def _arguments(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """What is started, and the words handed to it rather than to a launcher in front."""
    start = words.index("--") + 1 if "--" in words and "ray" in words[: words.index("--")] else 0
    for place in range(start, len(words)):
        word = words[place]
        if word in ("-m", "--module") and place + 1 < len(words) and "=" not in words[place + 1]:
            return words[place + 1], words[place + 2 :]
        if PYTHON_FILE.fullmatch(word) and place:
            return word, words[place + 1 :]
        below = COMMANDS.get(word.rpartition("/")[2])
        if below and place + 1 < len(words) and words[place + 1] in below:
            return f"{word} {words[place + 1]}", words[place + 2 :]
        if word in COMMANDS and not below and place and words[place - 1] in ("run", "--"):
            return word, words[place + 1 :]
    return words[0], words[1:]


def _findings(each: Started, words: tuple[str, ...], walk: Walk) -> Iterable[Finding]:
    """What the command takes from elsewhere."""
    if each.cut:
        yield Finding(
            f"line {each.cut}",
            "defect",
            "The shell ends the command here and passes nothing that follows: a backslash is missing, or a comment or a blank comes after "
            "it. The rest is read as it was meant.",
        )
    holes = [unknown for word in words if adds_words(word, walk.holes) and (unknown := walk.holes.of(word))]
    adds = [unknown for unknown in holes if not unknown.maybe]
    if adds:
        named = ", ".join(dict.fromkeys(f"{one.name}{f' (line {one.line})' if one.line else ''}" for one in adds))
        yield Finding(
            named,
            "note",
            "The command also takes these arguments, whose values the file does not determine; they are not read.",
        )


def _said_of(program: str) -> Iterable[Finding]:
    """What to say of a program that is named for a teacher, or that answers clients."""
    if answers_clients(program):
        yield Finding(
            program,
            "surprise",
            "Clients of this server choose the loss, and send bounds and advantages with each request; only what they cannot choose is "
            "shown here.",
        )
    if purpose_of(program) == DISTILLATION:
        yield Finding(
            program,
            "surprise",
            "Judging by its name, this program distils a teacher; what it adds to the loss and the advantages, or puts in their place, "
            "is not shown here.",
        )


def _parents(words: tuple[str, ...], keys: Mapping[str, Any], holes: Holes) -> tuple[NamedFile, ...]:
    """Flags that name a file of settings, with the file; a framework's own whole defaults are none."""
    named = [(flag, keys[flag]) for flag in PARENTS if flag in keys and (flag != "config_name" or _is_of_hydra(words))]
    named += [("@", holes.with_names(words[place + 1])) for place, word in enumerate(words[:-1]) if word == "@"]
    named += [("@", holes.with_names(word[1:])) for word in words if word.startswith("@") and len(word) > 1]
    named += [("script", holes.with_names(word)) for word in words[:1] if word.endswith(SHELL.endings)]
    texts = _texts(words, holes)
    shown = [(flag, texts.get(flag, value.name) if isinstance(value, Unknown) else str(value)) for flag, value in named]
    folder = texts.get("config_path", texts.get("config_dir", ""))
    return tuple(
        NamedFile(flag, name, folder if flag == "config_name" else "")
        for flag, name in shown
        if flag != "config_path" and not (flag == "config_name" and _is_default(name.partition(".")[0]))
    )


def _is_default(name: str) -> bool:
    """Whether `--config-name` names a framework's own whole defaults, which are the defaults already."""
    return any(re.fullmatch(each.default_config, name) for each in SIGNATURES.values())


def _is_of_hydra(words: tuple[str, ...]) -> bool:
    """Whether `config_name` names a file: written with a dash, or beside its folder. Elsewhere it is a model's."""
    flags = {word.partition("=")[0] for word in words}
    return "--config-name" in flags or "config_path" in map(flag_name, flags) or "config_dir" in map(flag_name, flags)


def _texts(words: tuple[str, ...], holes: Holes) -> dict[str, str]:
    """What follows each flag, as written, with the names of what is unknown in it."""
    pairs = [word.partition("=")[::2] for word in words if word.startswith("-") and "=" in word]
    pairs += [(word, after) for word, after in pairwise(words) if "=" not in word]
    return {flag_name(word): holes.with_names(after) for word, after in pairs if word.startswith("-")}
