"""A file with the files it builds on: `defaults` of Hydra and NeMo-RL, `toml_files` of prime-rl. Only those within reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from trimtab.dialects.reading import Finding
from trimtab.dialects.sources.beneath import SUFFIXES as ENDINGS
from trimtab.dialects.sources.beneath import Elsewhere, Reach, is_file, real_path
from trimtab.errors import ConfigFileError

DEEPEST, MOST = 10, 60
MOST_VALUES = 200_000
"""Values of all files of a family, those of one that is named again counted anew."""
SUFFIXES = ("", ".yaml", ".yml", ".toml")
SELF = "_self_"
OWN = {
    "ppo_trainer", "ppo_megatron_trainer", "ppo_base_config", "skyrl_base_config", "base_config", "ppo_config", "traj_envs",
    "step_envs", "envs",
}  # fmt: skip
"""A framework's own whole defaults: without them the defaults that are known here hold."""
KNOWN = "The file builds on {name}, defaults of the framework's own, which are not beside it; those known here hold."
Tree = Callable[[Path], Mapping[str, Any]]
Nested = dict[str, Any]


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
    missing: list[Elsewhere] = field(default_factory=list[Elsewhere])

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


def with_parents(path: Path, tree: Tree, reach: Reach) -> tuple[Nested, tuple[Finding, ...], tuple[Elsewhere, ...]]:
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
        if not absolute and file.suffix in ENDINGS and is_file(file):
            if family.reach.holds(file):
                return _whole(file, parent.package, above, family)
            out_of_reach = True
    if out_of_reach:
        family.missing.append(family.reach.outside(written, parent.package))
    elif not parent.optional:
        if parent.path.name.removesuffix(".yaml") in OWN or "deepspeed" in parent.path.name:
            family.findings.append(Finding("defaults", "note", KNOWN.format(name=written)))
        else:
            family.missing.append(Elsewhere(written, parent.package))
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
