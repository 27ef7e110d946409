"""A user's settings looked up in a dialect: keys by any part of their full name, sections and misspellings kept apart."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from trimtab.config.base import excerpt
from trimtab.dialects.framework import Dialect, FullNames, Given, Key, Part, parents
from trimtab.dialects.given import Unreadable
from trimtab.dialects.sources.unknown import Unknown, is_open
from trimtab.dialects.values import flag, kind_words, nested
from trimtab.errors import ConfigError, UnknownNameError, nearest

SHORTEST = 9
"""A key shorter than this may well be the beginning of one of ours by chance."""

COMMON = {"name", "type", "kind", "mode", "level", "target", "enabled", "enable", "group_size"}
"""Names alone that any command or file may have."""

NEGATIONS = ("no_", "disable_")
"""What flags that switch a setting off begin with: `--no-X` of argparse and tyro, `--no_X` of Hugging Face, `--disable-X` of slime."""

LONG_ENOUGH = 6
"""A key shorter than this has other words beside it by chance: `dtype` is no `type`."""


def look_up(
    dialect: Dialect,
    settings: Mapping[str, Any],
    *,
    documented: bool = False,
    width: int | None = None,
    partial: bool = False,
    whole: bool = False,
    elsewhere: Collection[str] = (),
    version: str = "",
) -> Given:
    """The values of the dialect's keys among flat settings; keys of no concern are passed over, misspelt ones refused.

    `partial`: a value that cannot be is kept as a problem of its part instead of raised. `whole`: these are all the settings of a
    run, so that none of the dialect's keys among them means its defaults, and a misspelt one is a problem of its part too.
    `elsewhere`: names that stand by themselves beside the sections of a file, and so mean no key inside one.
    """
    taken: dict[str, str] = {}  # the user's key by label
    roots: set[str] = set()
    settings = _with_sections(dialect, without_negations(dialect, _open_sections(dialect, settings)))
    free = dict.fromkeys(settings)
    for key in dialect.keys:
        matches = (found for path in key.paths for found in _matches(path, free))
        match = min((found for found in matches if not found[2] or found[1] not in elsewhere), default=None)
        if match is not None:
            _, written, root = match
            taken[key.label] = written
            roots.add(root)
            free.pop(written)
    sections = {section: settings[written] for section, written in _empty_sections(dialect, free).items()}
    wrong = [*_misplaced_sections(dialect, settings, set(taken.values())), *_misspelt(dialect, free, roots)]
    wrong += _unknown_inside(dialect, {key: settings[key] for key in free}, roots, whole)
    if wrong and not whole:
        raise wrong[0].error
    if settings and not taken and not sections and not whole and not dialect.is_whole(settings):
        close = nearest(next(iter(settings)), [key.label for key in dialect.keys])
        hint = close if close.startswith("Did") else "Check that these are its settings."
        raise UnknownNameError(f"{dialect.title} reads none of these keys: {excerpt(', '.join(settings))}. {hint}")
    values, problems = _values(dialect, settings, taken)
    if problems and not partial:
        raise problems[0].error
    values |= _unknown_by_section(dialect, settings, values)
    return Given(
        dialect,
        values | sections,
        settings,
        version or dialect.version,
        documented=documented,
        width=width,
        places=taken,
        problems=(*problems, *wrong),
    )


def _open_sections(dialect: Dialect, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with a section that a script or a flag holds as one mapping as the keys below it."""
    found: dict[str, Any] = {}
    for written, value in settings.items():
        if isinstance(value, dict) and value and written in dialect.sections:
            found |= {f"{written}.{name}": inner for name, inner in cast("dict[str, Any]", value).items()}
        else:
            found[written] = value
    return found


def _with_sections(dialect: Dialect, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with what stands below a key that may hold a section put together as its value: `length_penalty.type` and the like."""
    places = FullNames(path for key in dialect.keys if key.kind is nested for path in key.paths)
    found: dict[str, Any] = {}
    for written, value in settings.items():
        section = next((each for each in parents(written) if each in places), None)
        if section is None:
            found[written] = value
        elif isinstance(held := found.setdefault(section, {}), dict):
            held[written[len(section) + 1 :]] = value
    return found


def _values(
    dialect: Dialect, settings: Mapping[str, Any], taken: Mapping[str, str]
) -> tuple[dict[str, Any], list[Unreadable]]:
    """The values by label; one that cannot be is a problem there."""
    values: dict[str, Any] = {}
    problems: list[Unreadable] = []
    for key in dialect.keys:
        if key.label not in taken or _is_unsaid(key, settings[taken[key.label]]):
            continue
        try:
            values[key.label] = _value(dialect, key, settings[taken[key.label]])
        except ConfigError as error:
            problems.append(Unreadable(key.part, error))
            values[key.label] = problems[-1]
    return values, problems


def _unknown_by_section(dialect: Dialect, settings: Mapping[str, Any], said: Mapping[str, Any]) -> dict[str, Unknown]:
    """The keys that a section would hold which the file leaves open, as `rollout_correction: ${presets.mine}` does."""
    found: dict[str, Unknown] = {}
    for written, value in settings.items():
        if written in dialect.sections and is_open(value):
            unknown = (
                value if isinstance(value, Unknown) else Unknown(value, why="a reference to what the file does not set")
            )
            below = [key for key in dialect.keys if any(_is_below(path, written) for path in key.paths)]
            found |= {key.label: unknown for key in below if key.label not in said}
    return found


def _is_below(path: str, section: str) -> bool:
    return any(f".{each}".endswith(f".{section}") or f".{section}".endswith(f".{each}") for each in parents(path))


def count(keys: Iterable[Key], settings: Mapping[str, Any], *, own: bool = False) -> int:
    """How many of a dialect's keys flat settings say; `own`: without those that by themselves say nothing of a part."""
    settings = {key: value for key, value in settings.items() if key not in COMMON} if own else settings
    names = {key.rpartition(".")[2]: key for key in settings}
    counted = [key for key in keys if not own or key.part != "other"]
    paths = [[path for path in key.paths if path.rpartition(".")[2] in names] for key in counted]
    return sum(any(next(_matches(path, settings), None) for path in each) for each in paths)


def is_theirs(dialect: Dialect, settings: Mapping[str, Any]) -> bool:
    """Whether any of these keys is one of the framework's."""
    paths = [path for key in dialect.keys for path in key.paths]
    return dialect.is_whole(settings) or any(
        next(_matches(path, settings), None) is not None for path in (*paths, *dialect.closed)
    )


def _matches(path: str, written: Mapping[str, Any]) -> Iterator[tuple[int, str, str]]:
    """The user's keys that may mean this full name: itself, its end (a section given alone), or nested deeper. Best first."""
    for key in written:
        if key == path:
            yield 0, key, ""
        elif key.endswith(f".{path}") and "." in path:
            yield 1, key, ""
        elif path.endswith(f".{key}"):
            yield 2 + path.count(".") - key.count("."), key, path[: -len(key)]


def _empty_sections(dialect: Dialect, free: dict[str, Any]) -> dict[str, str]:
    """Sections written as null or {}, with what the user called them."""
    found: dict[str, str] = {}
    for section in dialect.closed:
        match = min(_matches(section, free), default=None)
        if match is not None:
            free.pop(match[1])
            found[section] = match[1]
    return found


def _misplaced_sections(dialect: Dialect, settings: Mapping[str, Any], taken: set[str]) -> Iterator[Unreadable]:
    """A section that holds one value, or a key that holds a section: either would be passed over without a word."""
    for written, value in settings.items():
        if is_open(value):
            continue
        if written not in taken and value is not None and value != {} and written in dialect.sections:
            below = next(key for key in dialect.keys if any(_is_below(path, written) for path in key.paths))
            yield Unreadable(
                below.part,
                ConfigError(
                    f"{dialect.title} {written} needs a section of `key: value` lines, got {excerpt(value)}. "
                    "Write its keys below it, or null where nothing is meant."
                ),
            )
        place = next((each for each in parents(written) if each in dialect.places), None)
        if place is not None:
            key = _key_at(dialect, place)
            yield Unreadable(
                key.part,
                ConfigError(
                    f"{dialect.title} {place} needs {kind_words(key.kind)}, got a section with the key "
                    f"{excerpt(written[len(place) + 1 :])}. Write the value itself."
                ),
            )


def _key_at(dialect: Dialect, written: str) -> Key:
    return next(key for key in dialect.keys for path in key.paths if next(_matches(path, {written: None}), None))


def _is_unsaid(key: Key, value: Any) -> bool:
    return value is None and key.null == "unsaid"


def _value(dialect: Dialect, key: Key, value: Any) -> Any:
    if value is None:
        if key.default is None or key.null == "open":
            return None
        raise ConfigError(
            f"{dialect.title} {key.path} needs {kind_words(key.kind)}, got null. Leave it out to take the default, {key.default}."
        )
    if isinstance(value, Unknown):
        return value
    if isinstance(value, str) and "${" in value:
        return Unknown(value, why="a reference to what the file does not set")
    if value == "???":
        return Unknown("???", why="which must be said at launch")
    if isinstance(value, list):
        unknown = next((each for each in cast("list[Any]", value) if isinstance(each, Unknown)), None)
        if unknown is not None:
            return unknown
    return key.kind(key.path, value)


def _misspelt(dialect: Dialect, free: Mapping[str, Any], roots: set[str]) -> Iterator[Unreadable]:
    parts: dict[str, Part] = {path: key.part for key in dialect.keys for path in key.paths}
    known: dict[str, Part] = {path.rpartition(".")[2]: part for path, part in parts.items()}
    for written in free:
        yield from _misspelt_section(dialect, written)
        for root in sorted(roots | {""}):
            parent, _, name = f"{root}{written}".rpartition(".")
            section = next((each for each in dialect.closed if f".{parent}.".endswith(f".{each}.")), None)
            siblings = [path.rpartition(".")[2] for path in parts if path.rpartition(".")[0] == parent]
            if section is not None or name in known or name in dialect.others:
                continue
            close = _close(name, siblings if parent else sorted(known))
            if close:
                said = f"{dialect.title} has no key {written!r}. Did you mean {close[0]!r}?"
                yield Unreadable(known[close[0]], UnknownNameError(said))
                break


def _unknown_inside(dialect: Dialect, free: Mapping[str, Any], roots: set[str], whole: bool) -> Iterator[Unreadable]:
    """Keys of no rule here in sections of which every key concerns us; of a whole file those that switch nothing on are passed."""
    for written, value in free.items():
        for root in sorted(roots | {""}):
            parent, _, name = f"{root}{written}".rpartition(".")
            section = next((each for each in dialect.closed if f".{parent}.".endswith(f".{each}.")), None)
            if section is None or (whole and value in (None, False, 0, "", "none", {}, [])):
                continue
            beside: dict[str, Part] = {
                path: key.part for key in dialect.keys for path in key.paths if path.startswith(f"{section}.")
            }
            said = f"{dialect.title} {section} has no key {name!r}. {nearest(name, [path.rpartition('.')[2] for path in beside])}"
            yield from (Unreadable(part, UnknownNameError(said)) for part in dict.fromkeys(beside.values()))
            break


def _close(name: str, names: list[str]) -> list[str]:
    """The name that was meant: nearly the same, or one that this is the beginning of. One word more or less is another thing."""
    begun = [each for each in names if len(name) >= SHORTEST and each.startswith(f"{name}_")]
    near = difflib.get_close_matches(name, [each for each in names if len(each) >= LONG_ENOUGH], n=1, cutoff=0.87)
    return [each for each in near if not _qualifies(name, each) and not _qualifies(each, name)] or begun[:1]


def _qualifies(name: str, known: str) -> bool:
    """Whether a name is a known one with a word put in, as `n_samples_per_eval_prompt`."""
    words, rest = known.split("_"), iter(name.split("_"))
    return name.count("_") > known.count("_") and all(word in rest for word in words)


def _misspelt_section(dialect: Dialect, written: str) -> Iterator[Unreadable]:
    parts = written.split(".")
    for section in dialect.closed:
        above, _, name = section.rpartition(".")
        for place, part in enumerate(parts[:-1]):
            parent = ".".join(parts[:place])
            beside = parent == above or above.endswith(f".{parent}") or parent == ""
            if beside and part not in (name, *dialect.others) and difflib.get_close_matches(part, [name], cutoff=0.87):
                said = f"{dialect.title} has no section {part!r}. Did you mean {name!r}?"
                yield Unreadable("correction", UnknownNameError(said))


def without_negations(dialect: Dialect, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with each such flag as the setting it switches off; one whose setting is said too, or that is a key itself, stays."""
    own = {path.rpartition(".")[2] for key in dialect.keys for path in key.paths}
    flags = {path.rpartition(".")[2] for key in dialect.keys if key.kind is flag for path in key.paths}
    found: dict[str, Any] = {}
    for written, value in settings.items():
        section, dot, name = written.rpartition(".")
        prefix = next((each for each in NEGATIONS if name.startswith(each) and name[len(each) :] in flags), "")
        meant = f"{section}{dot}{name[len(prefix) :]}"
        if prefix and name not in own and isinstance(value, bool) and meant not in settings:
            found[meant] = not value
        else:
            found[written] = value
    return found
