"""Settings from YAML and back: dotted overrides (`gates.0.upper=2`), `1e-4` is a number, comments kept out of the way."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast

from yaml import YAMLError

from trimtab.config.base import Config, excerpt
from trimtab.config.correction import Correction
from trimtab.config.interpolation import escape_references, step_into, steps, without_references
from trimtab.config.presets import preset_names, preset_with
from trimtab.config.safe_yaml import MOST_BYTES, MOST_LEVELS, reason, settings_of, shape_words, text_of, yaml_of
from trimtab.errors import ConfigError, ConfigFileError

__all__ = [
    "MOST_BYTES",
    "correction_from",
    "explained_yaml",
    "is_file_name",
    "load",
    "plain_data",
    "plain_settings",
    "to_yaml",
]

Value = TypeVar("Value", bound=Config)
OUR_ENDINGS = (".yaml", ".yml", ".json")
"""Of files that a value of ours can be in."""


def load(kind: type[Value], source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Value:
    """The value of that kind described by a YAML file, after `a.b=c` overrides."""
    settings = plain_settings(source, overrides)
    try:
        return kind.from_settings(settings)
    except ConfigError as error:
        raise type(error)(f"{os.fspath(source)}: {error}") from None


def plain_data(source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Any:
    """A YAML file as plain Python data, after `a.b=c` overrides and its own `${…}` references."""
    name, text = os.fspath(source), text_of(source)
    try:
        tree = settings_of(text)
    except (YAMLError, ValueError) as error:
        raise ConfigFileError(f"{name} needs to be YAML, got a problem: {reason(error)}.") from None
    if tree is None:
        raise ConfigFileError(
            f"{name} needs `field: value` lines, got an empty file. `trimtab explain NAME --yaml` writes one."
        )
    if not isinstance(tree, dict | list):
        raise ConfigFileError(f"{name} needs `field: value` lines, got {shape_words(tree)}.")
    return _override(cast("dict[Any, Any] | list[Any]", tree), overrides, name)


def plain_settings(source: str | os.PathLike[str] | None, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The settings of a file, or of none, after `a.b=c` overrides; a mapping."""
    if source is not None:
        settings = plain_data(source, overrides)
        if not isinstance(settings, dict):
            raise ConfigFileError(f"{source} needs `field: value` lines, got {shape_words(settings)}.")
        return cast("dict[str, Any]", settings)
    return _override({}, overrides, "The command line")


def _override(tree: dict[Any, Any] | list[Any], overrides: Iterable[str], origin: str) -> Any:
    for override in overrides:
        key, sign, text = override.partition("=")
        names = steps(key)
        if not sign or not names:
            raise ConfigError(
                f"An override needs the form key=value, got {excerpt(override)}. Example: gates.0.upper=2."
            )
        try:
            _put(tree, names, _value(text))
        except IndexError:
            raise ConfigError(
                f"The override {excerpt(override)} needs an item that exists. Items count from 0."
            ) from None
        except (YAMLError, ValueError, LookupError) as error:
            raise ConfigError(f"The override {excerpt(override)} does not fit: {reason(error)}.") from None
    return without_references(tree, origin)


def _value(text: str) -> Any:
    """What stands behind the sign of an override, as it would behind the colon of a file."""
    line = settings_of(f"value: {text}")
    if not isinstance(line, dict) or len(cast("dict[Any, Any]", line)) != 1:
        raise ValueError("it needs one value")
    return cast("dict[str, Any]", line)["value"]


def _put(tree: Any, names: list[str], value: Any) -> None:
    """Set what a key names; sections on the way are made, and a mapping is laid over the one that is there."""
    if len(names) > MOST_LEVELS:
        raise ValueError(f"it goes more than {MOST_LEVELS} levels deep")
    *way, last = names
    for name in way:
        key, inner = _place(tree, name)
        if not isinstance(inner, dict | list):
            inner = tree[key] = {}
        tree = inner
    key, before = _place(tree, last)
    tree[key] = _laid_over(before, value)


def _place(tree: Any, name: str) -> tuple[str | int, Any]:
    """Where a name stands, and what is there; a mapping has room for a new one, a list for none."""
    try:
        return step_into(tree, name)
    except KeyError:
        if isinstance(tree, list):
            raise ValueError(f"{excerpt(name)} needs to be the number of an item of the list") from None
        return name, None


def _laid_over(under: Any, over: Any) -> Any:
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    below, above = cast("dict[Any, Any]", under), cast("dict[Any, Any]", over)
    return below | {key: _laid_over(below.get(key), value) for key, value in above.items()}


def correction_from(name_or_file: str, overrides: Iterable[str] = ()) -> Correction:
    """A correction by preset name (overrides are its parameters) or from a YAML file (overrides are dotted keys).

    A file may also hold it beside other parts, under `correction`.
    """
    chosen = list(overrides)
    if is_file_name(name_or_file):
        whole = plain_data(name_or_file)
        if isinstance(whole, dict) and isinstance(whole.get("correction"), dict):
            inner = plain_data(name_or_file, [f"correction.{each}" for each in chosen])["correction"]
            return Correction.from_settings(inner)
        return load(Correction, name_or_file, chosen)
    parameters = _override({}, chosen, name_or_file)
    return preset_with(name_or_file, {str(key): value for key, value in parameters.items()})


def is_file_name(name: str) -> bool:
    """Whether a name means a file of settings rather than a preset."""
    if name in preset_names():
        return False
    return name.endswith(OUR_ENDINGS) or os.path.isfile(name)


def to_yaml(value: Config) -> str:
    """The YAML text that `load` reads back to an equal value."""
    return yaml_of(escape_references(value.settings()))


def explained_yaml(value: Config) -> str:
    """Every setting of a value, defaults included, under the description its field carries; `load` reads it back."""
    return "\n".join(_explain(value, ""))


def _explain(value: Config, margin: str) -> Iterator[str]:
    for name, info in type(value).model_fields.items():
        given = getattr(value, name)
        if info.description:
            yield f"{margin}# {info.description}"
        if isinstance(given, Config):
            yield f"{margin}{name}:"
            yield from _explain(given, f"{margin}  ")
        else:
            plain_value = value.model_dump(mode="json")[name]
            text = yaml_of(escape_references({name: plain_value})).rstrip("\n")
            yield from (f"{margin}{line}" for line in text.splitlines())
