"""The files that settings build on: which a name means, how far away it may lie, and the settings of one file over those of its parents.

Only files beside the settings or below the root of their repository are read: a file of settings that somebody else wrote may name any
other, whose values would then be printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

from trimtab.dialects.reading import Finding
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.sources.formats import TREES, YAML
from trimtab.errors import ConfigError, ConfigFileError

DEEPEST, MOST = 10, 60
MOST_VALUES = 200_000
"""Values of all files of a family, those of one that is named again counted anew."""
SUFFIXES = ("", ".yaml", ".yml", ".toml")
SELF = "_self_"
OWN_DEFAULTS = {name for each in SIGNATURES.values() for name in each.own_defaults}
"""Without them the defaults that are known here hold."""
KNOWN = "Builds on {name}, defaults of the framework itself, which are not available; the defaults known here apply."
Tree = Callable[[Path], Mapping[str, Any]]
Nested = dict[str, Any]


# ── where a file lies ─────────────────────────────────────────────────────────────────────────────────────────────────

HIGHEST = 5
"""Folders above the script's own in which a relative name is looked for: the root of a repository, mostly."""
MOST_PARTS = 12
MISSING = "which is not available"


@dataclass(frozen=True)
class MissingParent:
    """A file that settings build on and that is not read; a framework's own whole defaults are none."""

    name: str
    package: str = ""
    """The section that it fills; the whole where left out."""
    why: str = MISSING


@dataclass(frozen=True)
class Reach:
    """Where files may lie that a file of settings builds on: its own folder, and below a root."""

    own: Path
    root: Path

    def holds(self, file: Path) -> bool:
        """Whether a file, links followed, lies there."""
        real = real_path(file)
        return real.is_relative_to(self.own) or real.is_relative_to(self.root)

    def outside(self, name: str, package: str = "") -> MissingParent:
        """A file that is there and out of reach."""
        return MissingParent(name, package, f"which lies outside of {self.root} and is not read (--root DIR allows it)")


def reach_of(file: Path, root: str | os.PathLike[str] | None = None) -> Reach:
    """The folder of a file, and a root said for it; else the repository that it is in, as `.git` shows."""
    own = real_path(file.parent)
    if root is not None:
        if not os.path.isdir(root):
            raise ConfigError(f"--root needs a folder, got {os.fspath(root)!r}. Name one above the file.")
        return Reach(own, real_path(Path(root)))
    return Reach(own, next((each for each in (own, *own.parents) if os.path.lexists(each / ".git")), own))


def real_path(path: Path) -> Path:
    """A path with its links followed as far as they go."""
    return Path(os.path.realpath(path))


def file_beneath(script: Path, name: str, folder: str, reach: Reach) -> Path | MissingParent:
    """The file that a name in a script means; what is known of it where it is elsewhere, or its folder is not known."""
    found = MissingParent(name)
    for written in _names(name, folder):
        for place in _places(script, written):
            if is_file(place) and reach.holds(place):
                return place
            found = reach.outside(name) if is_file(place) else found
    return found


def _names(name: str, folder: str) -> Iterator[PurePosixPath]:
    """The name as written, in the folder named for it where there is one, with the ending it may lack."""
    joined = [f"{folder}/{name}", name] if folder else [name]
    for each in joined:
        path = PurePosixPath(each)
        yield from (
            (path,) if path.suffix in TREES else (path.with_name(f"{path.name}{end}") for end in YAML.endings[:1])
        )


def _places(script: Path, written: PurePosixPath) -> Iterator[Path]:
    """Where it may stand: what is known of it, beside the script first, then below the folders above."""
    known: list[str] = []
    for part in reversed(written.parts):
        if any(mark in part for mark in "$`*~/") or part == ".." or len(known) == MOST_PARTS:
            break
        known.insert(0, part)
    known = [part for part in known if part != "."]
    if not known:
        return
    above = [script.parent, *script.parent.parents][: HIGHEST + 1]
    for start in range(len(known)):
        yield script.parent.joinpath(*known[start:])
    for folder in above[1:] if len(known) > 1 else ():
        yield folder.joinpath(*known)


def is_file(path: Path) -> bool:
    """Whether an ordinary file is there; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


# ── its settings over those of its parents ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Parent:
    """A file that another builds on: where it may stand, what it is called, and under which key its settings go."""

    path: Path
    name: str
    package: str = ""
    optional: bool = False


@dataclass
class Family:
    """What was read on the way up."""

    root: Path
    tree: Tree
    reach: Reach
    known: dict[Path, tuple[Nested, int]] = field(default_factory=dict[Path, "tuple[Nested, int]"])
    """Every file that was read, with the number of its values."""
    count: int = 0
    values: int = 0
    choices: dict[str, str] = field(default_factory=dict[str, str])
    findings: list[Finding] = field(default_factory=list[Finding])
    missing: list[MissingParent] = field(default_factory=list[MissingParent])

    def read(self, path: Path, real: Path) -> Nested:
        """What a file says by itself, parsed once however often it is named."""
        if real not in self.known:
            found = dict(self.tree(path))
            self.known[real] = found, _count(found)
        tree, count = self.known[real]
        self.values += count
        if self.values > MOST_VALUES:
            raise ConfigFileError(
                f"{path} needs parents of at most {MOST_VALUES} values in all, got more. Look for one that is named many times."
            )
        return dict(tree)


def with_parents(path: Path, tree: Tree, reach: Reach) -> tuple[Nested, tuple[Finding, ...], tuple[MissingParent, ...]]:
    """The settings of a file over those of its parents, what there is to say of them, and which were not read."""
    family = Family(path.parent, tree, reach)
    whole = _whole(path, "", (), family)
    return whole, tuple(dict.fromkeys(family.findings)), tuple(dict.fromkeys(family.missing))


def _whole(path: Path, package: str, above: tuple[Path, ...], family: Family) -> Nested:
    """A file's settings, nested under its package, with its parents' below them."""
    family.count += 1
    here = real_path(path)
    if here in above:
        raise ConfigFileError(
            f"{path} needs parents that end, got itself among them ({here.name}). Take it out of defaults."
        )
    if len(above) > DEEPEST or family.count > MOST:
        raise ConfigFileError(f"{path} needs at most {DEEPEST} generations and {MOST} files of parents, got more.")
    own = family.read(path, here)
    listed = _defaults_of(own)
    steps = [each for each in listed if each != SELF]
    place = listed.index(SELF) if SELF in listed else len(listed)
    found: Nested = {}
    for at, entry in enumerate(listed if SELF in listed else [*steps, SELF]):
        if at == place or entry == SELF:
            found = overlay(found, _under(package, own))
            continue
        for parent in _parents(entry, path, package, own, family):
            inner = _parent_tree(parent, (*above, here), family)
            found = overlay(found, inner) if inner is not None else found
    return found


def _defaults_of(own: Nested) -> list[Any]:
    """What a file says it builds on, taken out of it."""
    defaults = own.get("defaults")
    if isinstance(defaults, str) or (isinstance(defaults, list) and _is_defaults(cast("list[Any]", defaults))):
        del own["defaults"]
        return [defaults] if isinstance(defaults, str) else list(cast("list[Any]", defaults))
    files = own.get("toml_files")
    if isinstance(files, str | list):
        del own["toml_files"]
        return [files] if isinstance(files, str) else list(cast("list[Any]", files))
    return []


def _is_defaults(listed: list[Any]) -> bool:
    return all(isinstance(each, str) or (isinstance(each, dict) and len(cast("Nested", each)) == 1) for each in listed)


def _parents(entry: Any, path: Path, package: str, own: Nested, family: Family) -> Iterator[Parent]:
    if isinstance(entry, str):
        name, _, at = entry.partition("@")
        yield Parent(path.parent / _file_name(name, own, family), entry, _package(at or "_here_", package, ""))
        return
    (group, named), *_ = cast("Nested", entry).items()
    group = str(group)
    optional = "optional " in group
    overrides = group.startswith("override ")
    group = group.replace("override ", "").replace("optional ", "").strip()
    plain, _, at = group.partition("@")
    if plain.lstrip("/").startswith("hydra"):
        return
    names = cast("list[Any]", named) if isinstance(named, list) else [named]
    for each in [str(one) for one in names if one is not None]:
        chosen = each if overrides else family.choices.get(plain.strip("/"), each)
        family.choices[plain.strip("/")] = chosen
        name = _file_name(chosen, own, family)
        start = family.root if plain.startswith("/") else path.parent
        yield Parent(start / plain.strip("/") / name, f"{plain}/{name}", _package(at, package, plain), optional)


def _file_name(name: str, own: Nested, family: Family) -> str:
    """A name with `${…}` filled in from what was chosen before."""

    def value(found: re.Match[str]) -> str:
        known = family.choices.get(found[1], own.get(found[1]))
        return str(known) if isinstance(known, str | int) else found[0]

    return re.sub(r"\$\{([\w.]+)\}", value, name)


def _package(at: str, package: str, group: str) -> str:
    if at == "_here_":
        return package
    if at.startswith("_global_"):
        return at.removeprefix("_global_").lstrip(".")
    inner = at or group.strip("/").replace("/", ".")
    return f"{package}.{inner}" if package and inner else package or inner


def _parent_tree(parent: Parent, above: tuple[Path, ...], family: Family) -> Nested | None:
    written = parent.name.partition("@")[0]
    absolute = written.startswith(("/", "~")) and not parent.path.is_relative_to(family.root)
    out_of_reach = False
    for suffix in SUFFIXES:
        file = parent.path.with_name(parent.path.name + suffix)
        if not absolute and file.suffix in TREES and is_file(file):
            if family.reach.holds(file):
                return _whole(file, parent.package, above, family)
            out_of_reach = True
    if out_of_reach:
        family.missing.append(family.reach.outside(written, parent.package))
    elif not parent.optional:
        if parent.path.name.removesuffix(".yaml") in OWN_DEFAULTS or "deepspeed" in parent.path.name:
            family.findings.append(Finding("defaults", "note", KNOWN.format(name=written)))
        else:
            family.missing.append(MissingParent(written, parent.package))
    return None


def _count(tree: Nested) -> int:
    """How many keys and values a file has."""
    pending: list[object] = [tree]
    count = 0
    while pending:
        value = pending.pop()
        count += 1
        if isinstance(value, list | Mapping):
            inner = cast("list[object] | Mapping[object, object]", value)
            pending += inner.values() if isinstance(inner, Mapping) else inner
    return count


def _under(package: str, own: Nested) -> Nested:
    for part in reversed(package.split(".")) if package else ():
        own = {part: own}
    return own


def overlay(below: Nested, above: Nested) -> Nested:
    """Two trees, the second over the first."""
    found = dict(below)
    for key, value in above.items():
        held = found.get(key)
        both = isinstance(held, Mapping) and isinstance(value, Mapping)
        found[key] = overlay(dict(cast("Nested", held)), dict(cast("Nested", value))) if both else value
    return found
