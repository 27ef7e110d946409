"""Any source of settings as flat_settings keys, with what was found on the way."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from trimtab.config.safe_yaml import text_of
from trimtab.dialects.reading import Finding
from trimtab.dialects.sources.flags import flag_name, scalar
from trimtab.dialects.sources.formats import SHELL, format_of
from trimtab.dialects.sources.inherit import MissingParent, Reach, file_beneath, reach_of, with_parents
from trimtab.dialects.sources.settings import Source, flat_settings, tree
from trimtab.errors import ConfigError, ConfigFileError, NotSettingsError

if TYPE_CHECKING:
    from trimtab.dialects.sources.launch import Launch, NamedFile

Score = Callable[[Mapping[str, Any]], int]


@dataclass(frozen=True)
class Contents:
    """The settings of a source; `programs` are the commands and modules it starts or imports."""

    keys: dict[str, Any]
    findings: tuple[Finding, ...] = ()
    programs: tuple[str, ...] = ()
    parents: tuple[MissingParent, ...] = ()
    """Files of settings that this builds on and that are not read."""
    top: tuple[str, ...] = ()
    """The names at the top of a file that nests its settings."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables that the command is given and that none of its words uses."""


@dataclass(frozen=True)
class OpenedFile(os.PathLike[str]):
    """A file of settings, parsed once for all who ask in turn whose it is and what it sets. It stands for its path."""

    path: Path
    reach: Reach
    commands: tuple[Launch, ...] = ()
    """What a script starts, or a task for a cluster."""
    tree: Mapping[str, Any] | None = None
    """The nested settings of any other file, over those of its parents."""
    findings: tuple[Finding, ...] = ()
    missing: tuple[MissingParent, ...] = ()

    def __fspath__(self) -> str:
        return str(self.path)

    def contents(self, score: Score) -> Contents:
        """Its settings; of several commands those of the one that scores most."""
        if self.tree is None:
            return _choose(self, self.commands, score)
        started = tuple(each for each in self.commands if score(each.keys))
        if started:
            return _choose(self, started, score)
        return Contents(
            flat_settings(self.tree), self.findings, parents=self.missing, top=tuple(str(key) for key in self.tree)
        )


def contents_of(source: Source, score: Score = len, root: str | os.PathLike[str] | None = None) -> Contents:
    """The settings of a mapping, a file or command-line words; of several commands the one that scores most.

    `root`: the folder below which files may lie that it builds on; the repository that it is in where left out, else its own folder.
    """
    if isinstance(source, Mapping) or not isinstance(source, str | os.PathLike):
        keys = flat_settings(source)
        return Contents(keys, top=tuple(dict.fromkeys(key.partition(".")[0] for key in keys)))
    return (source if isinstance(source, OpenedFile) else open_file(source, root)).contents(score)


def open_file(path: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> OpenedFile:
    """A file, opened and parsed; `root` as in `contents_of`."""
    return _opened(Path(path), reach_of(Path(path), root))


def _opened(path: Path, reach: Reach) -> OpenedFile:
    commands = format_of(path).commands
    if commands is not None:
        return OpenedFile(path, reach, tuple(commands(text_of(path), path)))
    whole, findings, missing = with_parents(path, tree, reach)
    within = _script_within(whole)
    started: list[Launch] = []
    if within and SHELL.commands is not None:
        with suppress(ConfigFileError):  # the file is told apart by its names
            started = SHELL.commands(within, path)
    return OpenedFile(path, reach, tuple(started), whole, findings, missing)


def _script_within(whole: Mapping[str, Any]) -> str:
    """The script that a task for a cluster runs, with the variables it is given; nothing where a file is no task."""
    script = next((whole[name] for name in ("run", "entrypoint") if isinstance(whole.get(name), str)), "")
    if not script or not {"resources", "setup", "compute_config", "envs"} & whole.keys():
        return ""
    given = whole.get("envs")
    named = cast("Mapping[object, object]", given).items() if isinstance(given, Mapping) else ()
    plain = [(name, value) for name, value in named if isinstance(value, str | int | float)]
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in plain) + script


def _choose(file: OpenedFile, found: Sequence[Launch], score: Score) -> Contents:
    programs = tuple(dict.fromkeys(each.program for each in found if each.program))
    if not found:
        raise NotSettingsError(
            f"{file.path} needs a command or a call with settings, got none. Pass the file that starts training."
        )
    from trimtab.dialects.sources.launch import best  # with the grammar of shells

    taken, said = best(found, score)
    ranked = (taken.program, *(each for each in programs if each != taken.program))
    others = () if score(taken.keys) else tuple(parent for each in found for parent in each.parents)
    named = taken.parents or others
    below, missing = _beneath(file, named)
    return Contents(
        {**below.keys, **taken.keys},
        (*file.findings, *said, *below.findings),
        ranked,
        tuple(missing),
        environment=taken.environment,
    )


def _beneath(script: OpenedFile, named: Iterable[NamedFile]) -> tuple[Contents, list[MissingParent]]:
    """The settings that a command builds on, from files beside the script, and those that are elsewhere."""
    keys: dict[str, Any] = {}
    findings: list[Finding] = []
    missing: list[MissingParent] = []
    for each in named:
        is_script = each.flag in ("script", "**")
        file = (
            MissingParent(each.name) if is_script else file_beneath(script.path, each.name, each.folder, script.reach)
        )
        if isinstance(file, MissingParent):
            missing.append(file)
            continue
        inner = _opened(file, script.reach).contents(len)
        keys |= inner.keys
        findings += [
            Finding(each.flag, "note", f"The settings of {file.name} are read too, beneath those of the command.")
        ]
        findings += inner.findings
        missing += inner.parents
    return Contents(keys, tuple(findings)), missing


def with_overrides(keys: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    """The keys with others on top; one that is written shorter or longer replaces the same key of the file."""
    found = dict(keys)
    for name, value in _pairs(overrides).items():
        same = [key for key in found if key == name or key.endswith(f".{name}") or name.endswith(f".{key}")]
        for key in same:
            del found[key]
        found[max([name, *same], key=len)] = value
    return found


def names_set(keys: Mapping[str, Any], overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, bool]:
    """The keys that are set on top of others, under the names they then have, and whether they were there before."""
    found: dict[str, bool] = {}
    for name in _pairs(overrides):
        same = [key for key in keys if key == name or key.endswith(f".{name}") or name.endswith(f".{key}")]
        found[max([name, *same], key=len)] = bool(same)
    return found


def _pairs(overrides: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    if isinstance(overrides, Mapping):
        return flat_settings(overrides)
    for each in overrides:
        if not re.match(r"^[-+]*[A-Za-z_][\w.-]*=", each):
            raise ConfigError(
                f"--set needs KEY=VALUE, got {each!r}. Write the framework's own key, as --set rollout_is=token."
            )
    pairs = (each.partition("=") for each in overrides)
    return {flag_name(key.lstrip("+")): scalar(value) for key, _, value in pairs}
