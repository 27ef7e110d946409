"""What a dialect is: its keys, the rules that read them, and remarks beside the rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from trimtab.config.algebra import Correction
from trimtab.dialects.examples import Examples
from trimtab.dialects.files.unknown import Unknown
from trimtab.dialects.hints import Hints
from trimtab.dialects.listed import within_lists
from trimtab.dialects.objectives import AdvantagePart, LossPart
from trimtab.dialects.reading import Finding, Level
from trimtab.dialects.signature import Signature
from trimtab.dialects.values import Kind
from trimtab.errors import ConfigError

Part = Literal["correction", "loss", "advantage", "other"]
"""What a key speaks of; `other` keys are read where needed and by themselves say nothing."""
Null = Literal["refused", "unsaid", "open"]
"""`unsaid`: the framework then takes its default. `open`: a value of its own, such as a side without a bound."""


@dataclass(frozen=True)
class Key:
    """One setting of a framework that concerns us."""

    path: str
    """Where it lives in the framework's own files."""
    kind: Kind
    default: Any = None
    part: Part = "correction"
    name: str = ""
    """What the rules call it; the last part of the path where left out."""
    also: tuple[str, ...] = ()
    """Other places where the same setting may stand."""
    legacy: bool = False
    """Removed from the version read; still understood."""
    null: Null = "refused"
    """What null means where the default is a value; where the default is null, null says just that."""
    since: str = ""
    """The release that brought it, where an earlier one is read too."""
    was: tuple[str, Any] | None = None
    """The release that brought the default, and the default before."""

    @cached_property
    def label(self) -> str:
        """What the rules call it."""
        return self.name or self.path.rpartition(".")[2]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every full name."""
        return (self.path, *self.also)


@dataclass(frozen=True)
class Unreadable:
    """A part of the settings that cannot be read, and why."""

    part: Part
    error: ConfigError


class Given:
    """The user's values of a dialect's keys: the framework's default where nothing was said."""

    def __init__(
        self,
        dialect: Dialect,
        values: Mapping[str, Any],
        written: Mapping[str, Any],
        *,
        documented: bool,
        width: int | None,
        version: str = "",
    ) -> None:
        self.dialect, self.values, self.documented, self.width = dialect, values, documented, width
        self.version = version or dialect.version
        self._written, self._listed = written, dict(within_lists(written))
        self.places: Mapping[str, str] = {}
        """What the user called each key."""
        self.builds_on_others = False
        """Whether files that are not there may say more."""
        self.is_run: bool | None = None
        """Whether these are all the settings of a run, so that the framework's defaults hold for the rest; None where it is not known."""
        self.problems: list[Unreadable] = []
        """What was written and cannot mean anything, by the part it speaks of."""
        self.looked_at: set[str] = set()
        """The keys whose values were asked for."""
        self.acting: frozenset[str] = frozenset()
        """Those that the rule of a part that is read asked for, which is all that can change a reading."""
        self._keys = dialect.by_label

    def without(self, label: str) -> Given:
        """The same with one key left out."""
        return self._copy({name: value for name, value in self.values.items() if name != label})

    def having(self, values: Mapping[str, Any]) -> Given:
        """The same with other values, by label."""
        return self._copy({**self.values, **values})

    def _copy(self, values: Mapping[str, Any]) -> Given:
        found = Given(
            self.dialect, values, self._written, documented=self.documented, width=self.width, version=self.version
        )
        found.places, found.problems, found.is_run = self.places, self.problems, self.is_run
        found.builds_on_others, found.looked_at = self.builds_on_others, self.looked_at
        return found

    def __getitem__(self, label: str) -> Any:
        key = self._keys[label]
        self.looked_at.add(label)
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
        return [*(key for key in self._written if key not in taken), *listed]

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
        return next((key for key in self._written if key.rpartition(".")[2] in names), None)

    def section(self, path: str) -> Any:
        """null or {} where a whole section was written so; False where it was not."""
        return self.values.get(path, False)

    @property
    def whole(self) -> bool:
        """Whether this is all that a run is given, or looks like a whole file of the framework rather than one section."""
        return self.dialect.is_whole(self._written) if self.is_run is None else self.is_run

    def value_written(self, key: str) -> Any:
        """What the user wrote under a key, ours or not."""
        return self._written[key] if key in self._written else self._listed[key]

    def value_of(self, key: str, otherwise: Any = False) -> Any:
        """What the user wrote under a key, ours or not; `otherwise` where it is not written."""
        return self._written.get(key, self._listed.get(key, otherwise))

    def has_section(self, name: str) -> bool:
        """Whether anything was written under a top-level name, ours or not."""
        return any(key.partition(".")[0] == name for key in self._written)

    def place(self, label: str) -> str:
        """The full name of a key: of several, the one that the user wrote."""
        written = self.places.get(label)
        if written is None or label not in self._keys:
            return self.path(label)
        return next(each for each in (*self._keys[label].paths, written) if _is_meant(each, written))

    def path(self, label: str) -> str:
        """The full name of a key."""
        return self._keys[label].path if label in self._keys else label


@dataclass(frozen=True)
class Remark:
    """A finding as data: which key, how bad, in one sentence with the remedy, and when it applies.

    `{name}` in the text stands for the value of that key.
    """

    key: str
    level: Level
    text: str
    when: Callable[[Given], bool]
    source: str = ""
    """Where the framework's code does so: a path in its package and the symbol, `utils/data.py KLEstimator`."""
    since: str = ""
    """The first release of which it holds, where an earlier one is read too."""
    fixed: str = ""
    """The release that no longer does so, and the change that mended it: `2.0.0, #1454`."""
    remedy: Callable[[Given], str] | None = None
    """What `{remedy}` in the text stands for, where it depends on more than one value."""

    def finding(self, given: Given) -> Finding:
        """The finding with the user's values filled in."""
        holds = f"{given.dialect.title} {given.version}" if self.source else ""
        if self.fixed:
            holds = f"{holds or f'{given.dialect.title} {given.version}'}; fixed in {self.fixed}"
        values = _Values(given)
        if self.remedy is not None:
            values["remedy"] = self.remedy(given)
        return Finding(given.place(self.key), self.level, self.text.format_map(values), holds, self.source)

    def holds(self, given: Given) -> bool:
        """Whether it is so in the release that is read, and applies to these settings."""
        fixed = self.fixed.partition(",")[0]
        is_there = (not self.since or given.since(self.since)) and (not fixed or not given.since(fixed))
        return is_there and self.when(given)


class _Values(dict[str, Any]):
    def __init__(self, given: Given) -> None:
        super().__init__()
        self._given = given

    def __missing__(self, label: str) -> Any:
        value = self._given[label]
        return f"{value:g}" if isinstance(value, float) and value >= 1e6 else value


@dataclass(frozen=True)
class Version:
    """A version other than the one read, by keys that its files have and those of the version read have not."""

    name: str
    keys: tuple[str, ...]
    """The last parts of their full names."""
    is_read: bool = True
    """Whether the keys are read as that version computes; those of a newer one may not be."""


@dataclass(frozen=True)
class Dialect:
    """A framework as a table: what it reads, what it computes, and what is surprising about it."""

    signature: Signature
    """Its names, and how its files are known."""
    version: str
    keys: tuple[Key, ...]
    correction_of: Callable[[Given], Correction | None]
    loss_of: Callable[[Given], LossPart] | None = None
    advantage_of: Callable[[Given], AdvantagePart] | None = None
    releases: tuple[str, ...] = ()
    """The releases that can be read where there are several, the oldest first; `version` is the one taken by default."""
    versions: tuple[Version, ...] = ()
    """Older and newer versions whose files show themselves by their keys, the oldest first."""
    remarks: tuple[Remark, ...] = ()
    closed: tuple[str, ...] = ()
    """Sections in which every key concerns us, so that an unknown one is a mistake."""
    entry_points: str = ".*"
    """Which of its programs are its own, and not a recipe's or an example's that may replace a part."""
    implied: tuple[tuple[str, Mapping[str, Any], *tuple[str, ...]], ...] = ()
    """What a program, or a class that a script imports, says by itself: a pattern of names, the keys it stands for, and the release
    since which it does where an earlier one is read too."""
    others: tuple[str, ...] = ()
    """FullNames of theirs that resemble ours and are no misspelling."""
    is_loss: bool = False
    """Whether its correction and its loss are one section, so that each speaks of the other."""
    apart: tuple[str, ...] = ()
    """Where ours departs from theirs on purpose, for every setting."""
    logged_kl: Callable[[Given], Literal["k1", "k2", "k3"]] = lambda _: "k3"
    """The estimate of the KL in what it logs."""
    candidates: Callable[[Correction], Iterator[dict[str, Any]]] = field(default=lambda _: iter(()))
    """Settings (by full name) that might say a correction; `write` takes the first that reads back to it."""
    hints: Hints = field(default_factory=Hints)
    """What a search for its losses and advantages has to know."""
    examples: Examples = field(default_factory=Examples)
    """For its page and the tests."""
    outdated: Callable[[Given], bool] = lambda given: any(
        key.legacy and given.has(key.label) for key in given.dialect.keys
    )
    """Whether the settings use keys, or values, that the framework has since replaced."""
    contexts: tuple[Mapping[str, Any], ...] = ({},)
    """What else a run may set that decides whether a correction acts: settings that are written have to hold under each."""
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    @property
    def name(self) -> str:
        """What commands and `read` call it."""
        return self.signature.name

    @property
    def title(self) -> str:
        """Its name as it writes it."""
        return self.signature.title

    @cached_property
    def by_label(self) -> dict[str, Key]:
        """The keys by what the rules call them."""
        return {key.label: key for key in self.keys}

    @cached_property
    def places(self) -> FullNames:
        """Every full name of every key."""
        return FullNames(path for key in self.keys for path in key.paths)

    @cached_property
    def sections(self) -> FullNames:
        """Every full name under which keys stand."""
        return FullNames(section for key in self.keys for path in key.paths for section in parents(path))

    def version_of(self, given: Given) -> Version | None:
        """The version that the keys show where it is not the one read."""
        return next((each for each in self.versions if given.written(*each.keys) is not None), None)

    def position(self, release: str) -> tuple[int, ...]:
        """Where a release stands among the others: by its numbers; what has none stands where `releases` names it."""
        if re.fullmatch(r"\d+(\.\d+)*", release):
            return tuple(map(int, release.split(".")))
        return (self.releases.index(release),) if release in self.releases else (0,)

    def release(self, asked: str) -> str:
        """The release to read: the one asked for, which has to be one of those that can be."""
        known = self.releases or (self.version,)
        chosen = next((each for each in known if asked in (each, each.rpartition(" ")[2])), None)
        if asked and chosen is None:
            raise ConfigError(
                f"version needs a release of {self.title} that is read here, got {asked!r}. Known: {', '.join(known)}."
            )
        return chosen or self.version

    def starts(self, programs: Iterable[str]) -> bool:
        """Whether one of these programs is the framework's."""
        return any(re.fullmatch(self.signature.programs, each) for each in programs)

    def implied_by(self, programs: Iterable[str], settings: Mapping[str, Any], version: str) -> dict[str, Any]:
        """The keys that programs stand for in a release and that settings leave out."""
        named, read = list(programs), self.position(version)
        said = [
            keys
            for pattern, keys, *since in self.implied
            if all(read >= self.position(each) for each in since) and any(re.fullmatch(pattern, each) for each in named)
        ]
        return {key: value for keys in said for key, value in keys.items() if key not in settings}

    def is_whole(self, settings: Mapping[str, Any]) -> bool:
        """Whether these settings look like a whole file of the framework."""
        return any(key.partition(".")[0] in self.signature.roots for key in settings)


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
