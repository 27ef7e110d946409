"""Settings from YAML and back: dotted overrides (`gates.0.upper=2`), `1e-4` is a number, comments kept out of the way."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import MarkedYAMLError, YAMLError

from trimtab.config.algebra import Correction
from trimtab.config.base import Config, shown
from trimtab.config.presets import preset, preset_names
from trimtab.errors import ConfigError, ConfigFileError

Value = TypeVar("Value", bound=Config)

MOST_BYTES = 1_000_000
"""Settings are written by people; anything larger is some other file."""


def load(kind: type[Value], source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Value:
    """The value of that kind described by a YAML file, after `a.b=c` overrides."""
    settings = plain(source, overrides)
    try:
        return kind.from_settings(settings)
    except ConfigError as error:
        raise type(error)(f"{os.fspath(source)}: {error}") from None


def plain(source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Any:
    """A YAML file as plain Python data, after `a.b=c` overrides and its own `${…}` references."""
    path = Path(source)
    text = _text(path)
    try:
        tree = OmegaConf.load(io.StringIO(text))
    except OSError:  # a lone number or date
        raise ConfigFileError(f"{path} needs `field: value` lines, got {shown(text.strip())}.") from None
    except (YAMLError, OmegaConfBaseException, RecursionError) as error:
        raise ConfigFileError(f"{path} needs to be YAML, got a problem: {_reason(error)}.") from None
    if not tree and "{" not in text:
        raise ConfigFileError(
            f"{path} needs `field: value` lines, got an empty file. `trimtab explain NAME --yaml` writes one."
        )
    return _overridden(tree, overrides, str(path))


def plain_settings(source: str | os.PathLike[str] | None, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The settings of a file, or of none, after `a.b=c` overrides; a mapping."""
    if source is not None:
        settings = plain(source, overrides)
        if not isinstance(settings, dict):
            raise ConfigFileError(f"{source} needs `field: value` lines, got {shown(settings)}.")
        return cast("dict[str, Any]", settings)
    return _overridden(OmegaConf.create({}), overrides, "the command line")


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MOST_BYTES:
            size = path.stat().st_size / 1e6
            raise ConfigFileError(
                f"{path} needs to be at most {MOST_BYTES / 1e6:g} MB of settings, got {size:.1f} MB. Check the path."
            )
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigFileError(f"{path} cannot be read: {error.strerror}. Check the path.") from None
    except UnicodeDecodeError as error:
        raise ConfigFileError(
            f"{path} needs to be UTF-8 text, got byte {error.object[error.start]:#04x} at {error.start}."
        ) from None


def _overridden(tree: Any, overrides: Iterable[str], origin: str) -> Any:
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise ConfigError(f"An override needs the form key=value, got {override!r}. Example: gates.0.upper=2.")
        try:
            value = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.create(f"value: {text}")))["value"]
            OmegaConf.update(tree, key, value, force_add=True)
        except IndexError:
            raise ConfigError(f"The override {override!r} needs an item that exists. Items count from 0.") from None
        except (YAMLError, OmegaConfBaseException, ValueError, TypeError, RecursionError) as error:
            raise ConfigError(f"The override {override!r} does not fit: {_reason(error)}.") from None
    try:
        return OmegaConf.to_container(tree, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigFileError(f"{origin} has a reference that cannot be resolved: {_reason(error)}.") from None


def correction_from(name_or_file: str, overrides: Iterable[str] = ()) -> Correction:
    """A correction by preset name (overrides are its parameters) or from a YAML file (overrides are dotted keys).

    A file may also hold it beside other parts, under `correction`.
    """
    chosen = list(overrides)
    if is_file_name(name_or_file):
        whole = plain(name_or_file)
        if isinstance(whole, dict) and isinstance(whole.get("correction"), dict):
            inner = plain(name_or_file, [f"correction.{each}" for each in chosen])["correction"]
            return Correction.from_settings(inner)
        return load(Correction, name_or_file, chosen)
    parameters = _overridden(OmegaConf.create({}), chosen, name_or_file)
    return preset(name_or_file, **{str(key): value for key, value in parameters.items()})


def is_file_name(name: str) -> bool:
    """Whether a name means a file of settings rather than a preset."""
    if name in preset_names():
        return False
    return name.endswith((".yaml", ".yml", ".json")) or os.path.isfile(name)


def to_yaml(value: Config) -> str:
    """The YAML text that `load` reads back to an equal value."""
    return OmegaConf.to_yaml(OmegaConf.create(value.settings()))


def explained_yaml(value: Config) -> str:
    """Every setting of a value, defaults included, under the description its field carries; `load` reads it back."""
    return "\n".join(_explained(value, ""))


def _explained(value: Config, margin: str) -> Iterator[str]:
    for name, info in type(value).model_fields.items():
        given = getattr(value, name)
        if info.description:
            yield f"{margin}# {info.description}"
        if isinstance(given, Config):
            yield f"{margin}{name}:"
            yield from _explained(given, f"{margin}  ")
        else:
            plain_value = value.model_dump(mode="json")[name]
            text = OmegaConf.to_yaml(OmegaConf.create({name: plain_value})).rstrip("\n")
            yield from (f"{margin}{line}" for line in text.splitlines())


def _reason(error: BaseException) -> str:
    """What went wrong in one line, with the place where YAML knows it."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, MarkedYAMLError) and error.problem:
        place = error.problem_mark
        return f"{error.problem} at line {place.line + 1}, column {place.column + 1}" if place else error.problem
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(".")
