"""The formats of files of settings: one row each, with its endings and what reads it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.config.safe_yaml import MOST_LEVELS, json_data, opened, settings_of
from trimtab.dialects.sources.grammar import ShellError
from trimtab.errors import ConfigFileError

if TYPE_CHECKING:
    from trimtab.dialects.sources.launch import Launch

SHEBANG = re.compile(r"#!\s*\S*\b(?:ba|z|k|da)?sh\b")


@dataclass(frozen=True)
class Format:
    """A kind of file: nested settings that `parse` reads from its text, or a script whose `commands` carry them."""

    name: str
    endings: tuple[str, ...]
    parse: Callable[[str], Any] | None = None
    commands: Callable[[str, Path], list[Launch]] | None = None
    """From its text and its path, which errors name."""


def _toml(text: str) -> Any:
    import tomllib  # few files are TOML

    if _LONG_KEY.search(text):  # the parser holds every beginning of a key
        raise ValueError(f"a key of more than {MOST_LEVELS} parts")
    return tomllib.loads(text)


_LONG_KEY = re.compile(
    rf"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MOST_LEVELS}}}""",
)


def _json(text: str) -> Any:
    return json_data(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _shell_commands(text: str, path: Path) -> list[Launch]:
    from trimtab.dialects.sources.launch import launches  # the grammar of shells, which YAML does without

    try:
        return launches(text)
    except (ShellError, RecursionError) as error:
        reason = "blocks nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ConfigFileError(
            f"{path} needs to be a shell script with balanced quotes, got a problem: {reason}."
        ) from None


def _python_commands(text: str, path: Path) -> list[Launch]:
    from trimtab.dialects.sources.python import from_python  # the grammar of scripts

    return from_python(text, str(path))


YAML = Format("YAML", (".yaml", ".yml"), parse=settings_of)
SHELL = Format("a shell script", (".sh", ".bash", ".zsh", ".sbatch", ".slurm", ".ksh"), commands=_shell_commands)
FORMATS = (
    YAML,
    Format("TOML", (".toml",), parse=_toml),
    Format("JSON", (".json",), parse=_json),
    SHELL,
    Format("Python", (".py",), commands=_python_commands),
)
ENDINGS = tuple(ending for each in FORMATS for ending in each.endings)
TREES = tuple(ending for each in FORMATS if each.parse is not None for ending in each.endings)
"""Endings of files that nest their settings."""


def format_of(path: Path) -> Format:
    """By its ending; a file with any other is a shell script where its first line says so, else YAML."""
    ending = path.suffix.lower()
    known = next((each for each in FORMATS if ending in each.endings), None)
    return known or (SHELL if _begins_as_shell(path) else YAML)


def _begins_as_shell(path: Path) -> bool:
    try:
        with opened(path) as file:
            return bool(SHEBANG.match(file.read(200).decode(errors="replace")))
    except OSError:
        return False
