"""Text, YAML and JSON from outside, read within limits: the one place where either is parsed.

A file is looked through event by event before anything is built from it, so that neither its depth nor what its anchors repeat
costs more than its bytes.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from dataclasses import dataclass
from io import BufferedReader
from typing import Any, cast

import yaml

from trimtab.errors import ConfigFileError

MOST_BYTES = 1_000_000
"""Settings are written by people; anything larger is some other file."""
MOST_VALUES = 40_000
"""Keys, values, mappings and lists of a file, counted anew wherever an anchor repeats them."""
MOST_LEVELS = 60
"""Mappings and lists inside one another."""
MOST_DIGITS = 308
"""Of a number: with more, a whole one has no floating-point neighbour."""

EVENTS: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where PyYAML has it: ten times as fast, and its events need no stack."""
_TAG = "tag:yaml.org,2002:"


class BeyondLimitError(yaml.MarkedYAMLError):
    """A YAML text that is larger, deeper or more repetitive than settings are."""


def opened(path: str | os.PathLike[str]) -> BufferedReader:
    """An ordinary file, opened for reading; an OSError for a pipe or a device, which could keep its reader waiting without end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode  # of what is open: the name may be another's by now
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"it is {_SPECIAL.get(stat.S_IFMT(mode), 'a device')}, no ordinary file")
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


_SPECIAL = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def text_of(path: str | os.PathLike[str]) -> str:
    """The text of a settings file, its line ends as they are."""
    name = os.fspath(path)
    try:
        with opened(name) as file:
            data = file.read(MOST_BYTES + 1)  # what grows meanwhile has more than its size
            size = max(os.fstat(file.fileno()).st_size, len(data))
        if size > MOST_BYTES:
            raise ConfigFileError(
                f"{name} needs to be at most {MOST_BYTES / 1e6:g} MB of settings, got {size / 1e6:.1f} MB. Check the path."
            )
        return data.decode()
    except OSError as error:
        raise ConfigFileError(f"{name} cannot be read: {error.strerror}. Check the path.") from None
    except UnicodeDecodeError as error:
        raise ConfigFileError(
            f"{name} needs to be UTF-8 text, got byte {error.object[error.start]:#04x} at {error.start}."
        ) from None
    except UnicodeEncodeError:
        raise ConfigFileError(f"{name} cannot be read: no file can have this name. Check the path.") from None


def yaml_data(text: str, loader: Any) -> Any:
    """The one document of a YAML text as a loader builds it; what cannot be read is a YAMLError or a ValueError."""
    check_yaml(text)
    try:
        return yaml.load(text, Loader=loader)
    except RecursionError:
        raise BeyondLimitError(problem="nested too deeply") from None


def json_data(text: str | bytes, **hooks: Any) -> Any:
    """What a JSON text says; what cannot be read is a ValueError."""
    try:
        return json.loads(text, **hooks)
    except RecursionError:
        raise ValueError("nested too deeply") from None


# ── the limits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _Part:
    """A mapping, a list or an anchored value: what it holds, aliases written out."""

    anchor: str | None
    values: int
    letters: int
    height: int = 0


def check_yaml(text: str) -> None:
    """Refuse a text that is too deep or repeats too much; one that is no YAML at all is left to the loader to refuse."""
    count = _Count()
    try:
        for event in yaml.parse(text, Loader=EVENTS):
            count.take(event)
    except BeyondLimitError:
        raise
    except (yaml.YAMLError, ValueError):
        return


class _Count:
    """A running count over the events of a text, as long as the text and no longer."""

    def __init__(self) -> None:
        self.values = self.letters = 0
        self.open: list[_Part] = []
        self.known: dict[str, _Part] = {}

    def take(self, event: Any) -> None:
        """Count one event."""
        if isinstance(event, yaml.DocumentStartEvent):
            self.known.clear()
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event)
        elif isinstance(event, yaml.ScalarEvent):
            length = len(cast("str", event.value))
            self._add(event, 1, length, 0)
            self._know(_Part(event.anchor, 1, length))
        elif isinstance(event, yaml.CollectionStartEvent):
            self.open.append(_Part(event.anchor, self.values, self.letters))
            self._add(event, 1, 0, 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            part = self.open.pop()
            self._know(_Part(part.anchor, self.values - part.values, self.letters - part.letters, part.height + 1))
            self._raise(part.height + 1)

    def _repeat(self, event: Any) -> None:
        if any(part.anchor == event.anchor for part in self.open):
            raise BeyondLimitError(problem=f"the anchor {event.anchor} contains itself", problem_mark=event.start_mark)
        part = self.known.get(event.anchor)
        if part is not None:  # otherwise the loader says that there is none
            self._add(event, part.values, part.letters, part.height)
            self._raise(part.height)

    def _add(self, event: Any, values: int, letters: int, height: int) -> None:
        self.values += values
        self.letters += letters
        problem = None
        if len(self.open) + height > MOST_LEVELS:
            problem = f"nested too deeply, in more than {MOST_LEVELS} levels"
        elif self.values > MOST_VALUES:
            problem = f"more than {MOST_VALUES} values, those an anchor repeats included"
        elif self.letters > MOST_BYTES:
            problem = f"more than {MOST_BYTES} characters, those an anchor repeats included"
        if problem:
            raise BeyondLimitError(problem=problem, problem_mark=event.start_mark)

    def _know(self, part: _Part) -> None:
        if part.anchor:
            self.known[part.anchor] = part

    def _raise(self, height: int) -> None:
        if self.open:
            self.open[-1].height = max(self.open[-1].height, height)


# ── settings ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Settings:
    """YAML of settings as the field's loaders read it: 1e-4 is a number, dates stay text, a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; refused where it says a key twice."""
        _refuse_twice(node)
        return super().construct_mapping(node, deep)  # pyright: ignore[reportAttributeAccessIssue]


def _refuse_twice(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        name = str(key.value) if isinstance(key, yaml.ScalarNode) and key.tag != f"{_TAG}merge" else None
        if name is not None and name in seen:
            raise yaml.constructor.ConstructorError(problem=f"the key {name[:80]!r} twice", problem_mark=key.start_mark)
        seen.update([name] if name is not None else [])


def _number(loader: Any, node: yaml.Node) -> Any:
    """A number or a truth value that its text really says: a tag can claim what is none."""
    kind = node.tag.removeprefix(_TAG)
    try:
        if not isinstance(node, yaml.ScalarNode) or len(cast("str", node.value)) > MOST_DIGITS:
            raise ValueError
        found = getattr(loader, f"construct_yaml_{kind}")(node)
        float(found)  # refuses a whole number that is larger than any other kind
        return found
    except (ValueError, LookupError, OverflowError):
        text = (
            repr(cast("str", node.value)[:40])
            if isinstance(node, yaml.ScalarNode)
            else f"a {type(node).__name__.removesuffix('Node').lower()}"
        )
        raise yaml.constructor.ConstructorError(
            problem=f"{text} cannot be read as {_KINDS[kind]}", problem_mark=node.start_mark
        ) from None


_KINDS = {
    "int": f"a whole number of at most {MOST_DIGITS} digits",
    "float": f"a number of at most {MOST_DIGITS} digits",
    "bool": "true or false",
}


def _without_timestamps(loader: Any) -> dict[str, Any]:
    return {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
        for first, resolvers in loader.yaml_implicit_resolvers.items()
    }


def _speaking_settings(kind: Any) -> Any:
    """A loader or dumper whose plain words mean what settings mean by them."""
    kind.yaml_implicit_resolvers = _without_timestamps(kind)
    kind.add_implicit_resolver(f"{_TAG}float", _POWER, list("-+.0123456789"))
    return kind


_BREAKS = re.compile("[\x85\u2028\u2029]")
_POWER = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$")


class SettingsLoader(_Settings, EVENTS):
    """The loader of settings files."""


class MarkedLoader(_Settings, yaml.SafeLoader):
    """The same with exact places, for what edits the text."""


class RecordedLoader(_Settings, EVENTS):
    """The loader of what PyYAML wrote: its dumper leaves the quotes off text such as 1e-4."""


class SettingsDumper(yaml.SafeDumper):
    """Writes what `SettingsLoader` reads back."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Text; with signs that other quotes would fold into a line's end, in those that keep them."""
        kept = '"' if _BREAKS.search(data) else None
        return self.represent_scalar(f"{_TAG}str", data, style=kept)


SettingsDumper.add_representer(str, SettingsDumper.represent_str)
for _kind in (SettingsLoader, MarkedLoader, SettingsDumper):
    _speaking_settings(_kind)
for _kind in (SettingsLoader, MarkedLoader, RecordedLoader):
    for _name in ("int", "float", "bool"):
        _kind.add_constructor(f"{_TAG}{_name}", _number)
    for _name in ("timestamp", "binary", "set", "omap", "pairs"):  # no setting is one of these
        _kind.add_constructor(f"{_TAG}{_name}", _kind.yaml_constructors[None])


def settings_of(text: str) -> Any:
    """The settings a YAML text holds: mappings, lists, text, numbers, truth values and null."""
    return yaml_data(text, SettingsLoader)


def yaml_of(settings: Any) -> str:
    """The YAML text that `settings_of` reads back to the same."""
    return yaml.dump(settings, Dumper=SettingsDumper, sort_keys=False, default_flow_style=False, allow_unicode=True)


def shape_words(value: Any) -> str:
    """What a whole file holds instead of settings, without a word of it: it may be any file, of secrets too."""
    return {list: "a list", str: "one piece of text", bool: "true or false"}.get(type(value), "one value")


def reason(error: BaseException) -> str:
    """What went wrong in one line, with the place where YAML knows it."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        if "another document" in error.problem:
            return "several documents; keep one, or split the file at its ---"
        place = error.problem_mark
        return f"{error.problem} at line {place.line + 1}, column {place.column + 1}" if place else error.problem
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(".")
