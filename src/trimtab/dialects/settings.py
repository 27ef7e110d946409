"""A user's settings as one flat mapping of dotted keys, from a mapping, a file, or command-line flags."""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml

from trimtab.config.base import shown
from trimtab.errors import ConfigError, ConfigFileError

Source = Mapping[str, Any] | str | os.PathLike[str] | Sequence[str]

MOST_BYTES = 1_000_000
MOST_KEYS = 20_000
MOST_LEVELS = 60


class _Loader(yaml.SafeLoader):
    """YAML as the frameworks' own loaders read it: 1e-4 is a number, dates stay text, a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping; refused where it says a key twice."""
        _refuse_twice(node)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """`<<` written out; refused where that never ends."""
        super().flatten_mapping(node)
        if len(cast("list[object]", node.value)) > MOST_KEYS:
            raise yaml.constructor.ConstructorError(
                problem=f"more than {MOST_KEYS} keys merged by <<", problem_mark=node.start_mark
            )


def _refuse_twice(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in cast("list[tuple[yaml.Node, yaml.Node]]", node.value):
        name = str(key.value) if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge" else None
        if name is not None and name in seen:
            raise yaml.constructor.ConstructorError(problem=f"the key {name!r} twice", problem_mark=key.start_mark)
        seen.update([name] if name is not None else [])


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def flat(source: Source) -> dict[str, Any]:
    """Every leaf of the settings under its dotted key; lists are leaves, references (`${a.b}`) are followed."""
    if isinstance(source, Mapping):
        keys = _flattened(source, "The settings")
    elif isinstance(source, str | os.PathLike):
        path = Path(source)
        keys = _flattened(tree(path), str(path))
    else:
        keys = flags(source)
    return {key: _followed(value, keys) for key, value in keys.items()}


def documents(text: str) -> list[tuple[yaml.Node, object]]:
    """Every document of a YAML text: where its parts stand, and what it says."""
    try:
        nodes = cast("list[yaml.Node]", list(yaml.compose_all(text, Loader=_Loader)))
        return list(
            zip(nodes, yaml.load_all(text, Loader=_Loader), strict=True)
        )  # loading writes merges into its nodes
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigFileError(f"The text needs to be YAML, got a problem: {_reason(error)}.") from None


def tree(path: Path) -> Mapping[str, Any]:
    """A settings file as plain nested data; a shell script is read for its flags."""
    text = text_of(path)
    parse = _PARSERS.get(path.suffix.lower(), _yaml)
    try:
        found = parse(text)
    except (yaml.YAMLError, tomllib.TOMLDecodeError, json.JSONDecodeError, RecursionError, ValueError) as error:
        raise ConfigFileError(
            f"{path} needs to be {_NAMES.get(parse, 'YAML')}, got a problem: {_reason(error)}."
        ) from None
    if found is None:
        raise ConfigFileError(f"{path} needs `key: value` lines, got an empty file. Check the path.")
    if not isinstance(found, Mapping):
        raise ConfigFileError(f"{path} needs `key: value` lines, got {_kind(found)}. Settings are a mapping.")
    return cast("Mapping[str, Any]", found)


def flags(words: Sequence[str]) -> dict[str, Any]:
    """Command-line words: `--some-flag 0.5 5.0`, `--flag=value`, `a.b=value`; other words are passed over."""
    found: dict[str, Any] = {}
    name: str | None = None
    for word in words:
        if not isinstance(word, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"Command-line flags need to be strings, got {shown(word)}. Pass a mapping for typed values."
            )
        head, sign, tail = word.partition("=")
        if re.match(r"^--?[A-Za-z]", word):
            name = _flag_name(head)
            found[name] = _scalar(tail) if sign else True
            name = None if sign else name
        elif sign and re.match(r"^\+{0,2}[A-Za-z_][\w.]*$", head):  # Hydra, OmegaConf
            found[head.lstrip("+")] = _scalar(tail)
            name = None
        elif name is not None:
            earlier = found[name]
            found[name] = _scalar(word) if earlier is True else [*_listed(earlier), _scalar(word)]
    return found


def _flag_name(head: str) -> str:
    return head.lstrip("-").replace("-", "_")


def _listed(value: Any) -> list[Any]:
    return list(cast("list[Any]", value)) if isinstance(value, list) else [value]


def _scalar(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError:
        return text


def text_of(path: Path) -> str:
    """The text of a settings file, its line ends as they are."""
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ConfigFileError(
                f"{path} needs to be at most {MOST_BYTES / 1e6:g} MB of settings, got {size / 1e6:.1f} MB. Check the path."
            )
        return path.read_bytes().decode()
    except OSError as error:
        raise ConfigFileError(f"{path} cannot be read: {error.strerror}. Check the path.") from None
    except UnicodeDecodeError as error:
        raise ConfigFileError(f"{path} needs to be UTF-8 text, got byte {error.object[error.start]:#04x}.") from None


def _yaml(text: str) -> Any:
    return yaml.load(text, Loader=_Loader)


def _toml(text: str) -> Any:
    return tomllib.loads(text)


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _shell(text: str) -> Any:
    """The flags of a launch script, line continuations joined, comments left out."""
    joined = re.sub(r"\\\r?\n", " ", text)
    return flags([word for line in joined.splitlines() for word in shlex.split(line, comments=True)])


_PARSERS: dict[str, Callable[[str], Any]] = {".toml": _toml, ".json": _json, ".sh": _shell}
_NAMES: dict[Callable[[str], Any], str] = {
    _yaml: "YAML",
    _toml: "TOML",
    _json: "JSON",
    _shell: "a shell script with balanced quotes",
}


def _flattened(source: Mapping[str, Any], origin: str) -> dict[str, Any]:
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


_REFERENCE = re.compile(r"^\$\{([A-Za-z_][\w.]*)\}$")


def _followed(value: Any, keys: Mapping[str, Any]) -> Any:
    """What a `${a.b}` points at; anything else, and what cannot be found, as it is."""
    for _ in range(MOST_LEVELS):
        match = _REFERENCE.match(value) if isinstance(value, str) else None
        if match is None or match[1] not in keys:
            break
        value = keys[match[1]]
    return value


def _kind(value: Any) -> str:
    return {list: "a list", str: "one piece of text", bool: "true or false"}.get(type(value), "one value")


def _reason(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        if "another document" in error.problem:
            return "several documents; keep one, or split the file at its ---"
        place = error.problem_mark
        return f"{error.problem} at line {place.line + 1}, column {place.column + 1}" if place else error.problem
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(".")
