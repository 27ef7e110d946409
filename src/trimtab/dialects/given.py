"""What a user gave a framework: its keys with their values, the framework's defaults where nothing was said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from trimtab.dialects.sources.unknown import Unknown
from trimtab.errors import ConfigError

if TYPE_CHECKING:
    from trimtab.dialects.framework import Dialect, Key, Part


@dataclass(frozen=True)
class Unreadable:
    """A part of the settings that cannot be read, and why."""

    part: Part
    error: ConfigError


@dataclass(frozen=True)
class Given:
    """The user's values of a dialect's keys: the framework's default where nothing was said."""

    dialect: Dialect
    values: Mapping[str, Any]
    """By label."""
    all_written: Mapping[str, Any]
    """Everything that the user wrote, keys of no rule included."""
    version: str
    """The release that is read."""
    documented: bool = False
    width: int | None = None
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the user called each key."""
    problems: tuple[Unreadable, ...] = ()
    """What was written and cannot mean anything, by the part it speaks of."""
    is_run: bool | None = None
    """Whether these are all the settings of a run, so that the framework's defaults hold for the rest; None where it is not known."""
    builds_on_others: bool = False
    """Whether files that are not there may say more."""
    _asked_for: set[str] = field(default_factory=set[str], repr=False, compare=False)

    @cached_property
    def _keys(self) -> Mapping[str, Key]:
        return self.dialect.by_label

    @cached_property
    def _listed(self) -> Mapping[str, Any]:
        return dict(within_lists(self.all_written))

    def without(self, label: str) -> Given:
        """The same with one key left out."""
        return replace(self, values={name: value for name, value in self.values.items() if name != label})

    def having(self, values: Mapping[str, Any]) -> Given:
        """The same with other values, by label."""
        return replace(self, values={**self.values, **values})

    def traced(self) -> tuple[Given, set[str]]:
        """The same with a set of its own, to which every key is added whose value a rule asks for."""
        trace = set[str]()
        return replace(self, _asked_for=trace), trace

    def __getitem__(self, label: str) -> Any:
        key = self._keys[label]
        self._asked_for.add(label)
        value = self.values.get(label, self.default(key)) if self.since(key.since) else self.default(key)
        if isinstance(value, Unreadable):
            raise value.error
        if isinstance(value, Unknown):
            name = self.places.get(label, key.path)
            raise ConfigError(f"{name} depends on {value}. Pass --set {name}=VALUE.")
        return value

    def since(self, release: str) -> bool:
        """Whether the release that is read is this one or a later one; it is for no release at all."""
        return not release or self.dialect.position(self.version) >= self.dialect.position(release)

    def default(self, key: Key) -> Any:
        """What the release that is read takes where nothing was said."""
        return key.default if key.was is None or self.since(key.was[0]) else key.was[1]

    @property
    def unread_keys(self) -> list[str]:
        """The user's keys that are none of ours, those inside lists by their number: `train.env.0.args.alpha`."""
        taken = set(self.places.values())
        listed = [key for key in self._listed if not taken & set(parents(key))]
        return [*(key for key in self.all_written if key not in taken), *listed]

    def __contains__(self, label: object) -> bool:
        return label in self._keys

    def has(self, *labels: str) -> bool:
        """Whether the user wrote one of these, be it only to say null."""
        return any(label in self.values for label in labels)

    def is_on(self, *labels: str) -> bool:
        """Whether one of these has a value, given or by default, that is neither null nor false."""
        return any(self[label] not in (None, False) for label in labels)

    def speaks_of(self, part: Part) -> bool:
        """Whether a key of that part was said."""
        return any(self._keys[label].part == part for label in self.values if label in self._keys)

    def part_of(self, label: str) -> Part:
        """What a key speaks of."""
        return self._keys[label].part

    def switches_off(self, part: Part) -> bool:
        """Whether a key of that part was said to be off."""
        said = [value for label, value in self.values.items() if label in self._keys and self._keys[label].part == part]
        return any(value in (None, False, "off", "none", "disabled") for value in said) or self.closed_section

    @property
    def closed_section(self) -> bool:
        """Whether a section of the correction was written as null or {}."""
        return any(path in self.values for path in self.dialect.closed)

    def written(self, *names: str) -> str | None:
        """The first key, ours or not, whose own name is one of these, as the user wrote it."""
        return next((key for key in self.all_written if key.rpartition(".")[2] in names), None)

    def section(self, path: str) -> Any:
        """null or {} where a whole section was written so; False where it was not."""
        return self.values.get(path, False)

    @property
    def whole(self) -> bool:
        """Whether this is all that a run is given, or looks like a whole file of the framework rather than one section."""
        return self.dialect.is_whole(self.all_written) if self.is_run is None else self.is_run

    def value_written(self, key: str) -> Any:
        """What the user wrote under a key, ours or not."""
        return self.all_written[key] if key in self.all_written else self._listed[key]

    def value_of(self, key: str, otherwise: Any = False) -> Any:
        """What the user wrote under a key, ours or not; `otherwise` where it is not written."""
        return self.all_written.get(key, self._listed.get(key, otherwise))

    def has_section(self, name: str) -> bool:
        """Whether anything was written under a top-level name, ours or not."""
        return any(key.partition(".")[0] == name for key in self.all_written)

    def place(self, label: str) -> str:
        """The full name of a key: of several, the one that the user wrote."""
        written = self.places.get(label)
        if written is None or label not in self._keys:
            return self.path(label)
        return next(each for each in (*self._keys[label].paths, written) if _is_meant(each, written))

    def path(self, label: str) -> str:
        """The full name of a key."""
        return self._keys[label].path if label in self._keys else label


class FullNames:
    """Full names, found by what users write for them: the name, the end of it, or the name nested deeper."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = frozenset(paths)
        self._ends = frozenset(end for path in self.paths for end in _ends(path))

    def __contains__(self, written: str) -> bool:
        return written in self._ends or any(end in self.paths for end in _ends(written) if "." in end)


def parents(path: str) -> list[str]:
    """The sections a dotted name stands in, the outermost first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _is_meant(path: str, written: str) -> bool:
    """Whether users may write this for a full name: the name, the end of it, or the name nested deeper."""
    return f".{path}".endswith(f".{written}") or f".{written}".endswith(f".{path}")


def _ends(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[count:]) for count in range(len(parts))]


def within_lists(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value of every section in a list, by a dotted name with its number: `train.env.0.args.alpha`."""
    for key, value in settings.items():
        if isinstance(value, list):
            yield from _inside(key, cast("list[Any]", value))


def _inside(prefix: str, values: list[Any]) -> Iterator[tuple[str, Any]]:
    for place, each in enumerate(values):
        if isinstance(each, Mapping):
            yield from _below(f"{prefix}.{place}", cast("Mapping[Any, Any]", each))


def _below(prefix: str, section: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        path = f"{prefix}.{name}"
        if isinstance(value, Mapping) and value:
            yield from _below(path, cast("Mapping[Any, Any]", value))
            continue
        yield path, value
        if isinstance(value, list):
            yield from _inside(path, cast("list[Any]", value))
