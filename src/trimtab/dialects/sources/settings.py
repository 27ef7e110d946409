"""A user's settings as one flat mapping of dotted keys, from a mapping, a file, or command-line flags."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from trimtab.config.base import excerpt
from trimtab.config.safe_yaml import (
    MOST_LEVELS,
    MarkedLoader,
    check_yaml,
    reason,
    settings_of,
    shape_words,
    text_of,
)
from trimtab.dialects.sources.flags import keys_of, scalar
from trimtab.dialects.sources.formats import YAML, format_of
from trimtab.dialects.sources.unknown import Holes
from trimtab.errors import ConfigError, ConfigFileError, NotSettingsError

Source = Mapping[str, Any] | str | os.PathLike[str] | Sequence[str]

MOST_KEYS = 20_000
TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}")
"""A place that Jinja and its like fill in."""


def flat_settings(source: Source) -> dict[str, Any]:
    """Every value of the settings under its dotted key; lists are values, references (`${a.b}`) are followed."""
    if isinstance(source, Mapping):
        keys = _flatten(source, "The settings")
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        keys = _flatten(tree(path), str(path))
    else:
        keys = _flatten(flags(source), "The flags")
    return _with_references(keys)


def documents(text: str) -> list[tuple[yaml.Node, object]]:
    """Every document of a YAML text: where its parts stand, and what it says."""
    try:
        check_yaml(text)
        nodes = cast("list[yaml.Node]", list(yaml.compose_all(text, Loader=MarkedLoader)))
        return list(
            zip(nodes, yaml.load_all(text, Loader=MarkedLoader), strict=True)
        )  # loading writes merges into its nodes
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigFileError(f"The text needs to be YAML, got a problem: {reason(error)}.") from None


def tree(path: Path) -> Mapping[str, Any]:
    """A settings file as plain nested data."""
    text = text_of(path)
    kind = format_of(path)
    kind = YAML if kind.parse is None else kind
    parse = kind.parse or settings_of
    try:
        found = parse(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        if TEMPLATE.search(text):
            raise NotSettingsError(
                f"{path} is a template ({{{{ … }}}}) that another program fills in. Pass the file that it makes."
            ) from None
        raise ConfigFileError(f"{path} needs to be {kind.name}, got a problem: {reason(error)}.") from None
    if found is None:
        raise ConfigFileError(f"{path} needs `key: value` lines, got an empty file. Check the path.")
    if not isinstance(found, Mapping):
        raise ConfigFileError(f"{path} needs `key: value` lines, got {shape_words(found)}. Settings are a mapping.")
    return cast("Mapping[str, Any]", found)


def flags(words: Sequence[str]) -> dict[str, Any]:
    """Command-line words: `--some-flag 0.5 5.0`, `--flag=value`, `a.b=value`; other words are passed over."""
    for word in words:
        if not isinstance(word, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"Command-line flags need to be strings, got {excerpt(word)}. Pass a mapping for typed values."
            )
    return keys_of(words, Holes())


def _flatten(source: Mapping[str, Any], origin: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pending: list[tuple[str, Any, int]] = [("", source, 0)]
    while pending:
        prefix, value, level = pending.pop()
        if not isinstance(value, Mapping):
            found[prefix] = value
            if isinstance(value, list) and _grows(cast("list[object]", value)):
                raise ConfigFileError(
                    f"{origin} needs lists of at most {MOST_KEYS} values, got more under {prefix}. "
                    "Look for an anchor that repeats itself."
                )
            continue
        if level > MOST_LEVELS or len(found) + len(pending) > MOST_KEYS:
            raise ConfigFileError(
                f"{origin} needs to end: it nests deeper than {MOST_LEVELS} levels or holds more than {MOST_KEYS} keys. "
                "Look for an anchor that contains itself."
            )
        keys = cast("Mapping[object, Any]", value)
        if not keys and prefix:
            found[prefix] = {}
        for key, inner in reversed(list(keys.items())):
            pending.append((f"{prefix}.{key}" if prefix else str(key), inner, level + 1))
    return found


def _grows(values: list[object]) -> bool:
    """Whether a list holds more values, nested ones and repeated anchors counted each time, than settings ever do."""
    pending, count = list(values), 0
    while pending and count + len(pending) <= MOST_KEYS:
        value = pending.pop()
        count += 1
        if isinstance(value, list | Mapping):
            inner = cast("list[object] | Mapping[object, object]", value)
            pending += inner.values() if isinstance(inner, Mapping) else inner
    return bool(pending)


def _with_references(keys: dict[str, Any]) -> dict[str, Any]:
    """The settings with every `${a.b}` replaced by what it points at, a value or a whole section."""
    targets = {
        key: match[1] for key, value in keys.items() if isinstance(value, str) and (match := _REFERENCE.match(value))
    }
    named = set(targets.values())
    beneath: dict[str, list[str]] = {}
    for key in keys:
        for end in range(len(key)):
            if key[end] == "." and key[:end] in named:
                beneath.setdefault(key[:end], []).append(key)
    found: dict[str, Any] = {}
    for key, value in keys.items():
        target = targets.get(key, "")
        section = beneath.get(target, [])
        if len(found) + len(section) > MOST_KEYS:
            raise ConfigFileError(
                f"The settings need at most {MOST_KEYS} keys, got more under {key}. Look for a reference that repeats itself."
            )
        found |= {f"{key}{each[len(target) :]}": _follow(keys[each], keys, each) for each in section}
        if not section:
            found[key] = _follow(value, keys, key)
    return found


_REFERENCE = re.compile(r"^\$\{([A-Za-z_][\w.]*)\}$")
_RELATIVE = re.compile(r"^\$\{(\.+)([A-Za-z_][\w.]*)\}$")
_OTHERWISE = re.compile(r"^\$\{oc\.(?:env|select):\s*([\w.]+)\s*,\s*([^${},]*)\}$")
"""A setting, or a variable of the environment, with what holds where it is not there. No environment is looked at."""


def _follow(value: Any, keys: Mapping[str, Any], place: str = "") -> Any:
    """What a `${a.b}` points at, from the root or from a place; anything else, and what cannot be found, as it is."""
    for _ in range(MOST_LEVELS):
        if not isinstance(value, str) or "${" not in value:
            break
        otherwise = _OTHERWISE.match(value)
        if otherwise is not None:
            value = keys[otherwise[1]] if otherwise[1] in keys else scalar(otherwise[2])
            continue
        match = _REFERENCE.match(value)
        target = match[1] if match is not None else _from_place(value, place)
        if target not in keys:
            break
        value, place = keys[target], target
    return value


def _from_place(value: str, place: str) -> str:
    """The full name that `${.a}` or `${..a}` means in a place: as many levels up as it has dots."""
    match = _RELATIVE.match(value)
    above = place.split(".")[: -len(match[1])] if match is not None else []
    return ".".join([*above, match[2]]) if match is not None else ""
