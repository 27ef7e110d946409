"""What the file of a framework is written in: keys, remarks, versions, and the dialect that holds them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from trimtab.config.correction import Correction
from trimtab.dialects.given import FullNames, Given, parents
from trimtab.dialects.parts import AdvantagePart, LossPart
from trimtab.dialects.reading import Finding, Level
from trimtab.dialects.registry import Signature
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

    # What a search for its value has to know and cannot see in the kind (`writing`).
    options: tuple[Any, ...] = ()
    """Values that it may have where its kind does not name them, or does not name all; a number among them is then moved to the goal."""
    joint: tuple[str, ...] = ()
    """The keys that only together with it choose a loss or an estimator; every other key is chosen by itself."""
    chooses: tuple[Part, ...] = ()
    """The parts that it chooses too, beside the one it speaks of."""
    seed: Any = None
    """The value to begin with, under which every option reads; one that turns out idle is left out again."""
    field: str = ""
    """Of a number that another key switches on or multiplies: the field of ours that it stands for, whose value goes in first."""
    frees: bool = False
    """Whether it frees a number from another, and is tried where numbers do not fit without."""
    holds: Kind | None = None
    """The kind of what is written where it may hold anything."""
    toggle: bool = False
    """Whether it is a number whose 0 means off."""

    @cached_property
    def label(self) -> str:
        """What the rules call it."""
        return self.name or self.path.rpartition(".")[2]

    @property
    def paths(self) -> tuple[str, ...]:
        """Every full name."""
        return (self.path, *self.also)


@dataclass(frozen=True)
class Remark:
    """A finding as data: which key, how bad, in one sentence with the remedy, and when it applies.

    `{name}` in the text stands for the value of that key.
    """

    key: str
    when: Callable[[Given], bool]
    text: str
    level: Level
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


def remark(key: str, when: Callable[[Given], bool], text: str, **more: Any) -> Remark:
    """What is good to know: a remark of level note."""
    return Remark(key, when, text, "note", **more)


def surprise(key: str, when: Callable[[Given], bool], text: str, **more: Any) -> Remark:
    """What is rarely meant."""
    return Remark(key, when, text, "surprise", **more)


def defect(key: str, when: Callable[[Given], bool], text: str, **more: Any) -> Remark:
    """What is never meant."""
    return Remark(key, when, text, "defect", **more)


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
    beside: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}
    """Keys that must stand beside those that are written and say nothing of ours, such as how many answers a group has."""
    outdated: Callable[[Given], bool] = lambda given: any(
        key.legacy and given.has(key.label) for key in given.dialect.keys
    )
    """Whether the settings use keys, or values, that the framework has since replaced."""
    contexts: tuple[Mapping[str, Any], ...] = ({},)
    """What else a run may set that decides whether a correction acts: settings that are written have to hold under each."""

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
