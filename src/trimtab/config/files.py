"""Settings from YAML and back: dotted overrides (`gates.0.upper=2`), `1e-4` is a number, comments kept out of the way."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, cast

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from trimtab.config.algebra import Correction
from trimtab.config.base import Config
from trimtab.config.presets import preset
from trimtab.errors import ConfigError, ConfigFileError

Value = TypeVar("Value", bound=Config)


def load(kind: type[Value], source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Value:
    """The value of that kind described by a YAML file, after `a.b=c` overrides."""
    return kind.from_settings(plain(source, overrides))


def plain(source: str | os.PathLike[str], overrides: Iterable[str] = ()) -> Any:
    """A YAML file as plain Python data, after `a.b=c` overrides and its own `${…}` references."""
    path = Path(source)
    try:
        tree = OmegaConf.load(path)
    except OSError as error:
        raise ConfigFileError(f"{path} cannot be read: {error.strerror}. Check the path.") from None
    except (YAMLError, OmegaConfBaseException) as error:
        raise ConfigFileError(f"{path} needs to be YAML, got: {_first_line(error)}.") from None
    return _overridden(tree, overrides)


def _overridden(tree: Any, overrides: Iterable[str]) -> Any:
    for override in overrides:
        key, sign, text = override.partition("=")
        if not sign or not key:
            raise ConfigError(f"An override needs the form key=value, got {override!r}. Example: gates.0.upper=2.")
        value = OmegaConf.to_container(OmegaConf.create({"value": OmegaConf.create(f"value: {text}")}))
        try:
            OmegaConf.update(tree, key, cast("dict[str, Any]", value)["value"]["value"], force_add=True)
        except (OmegaConfBaseException, ValueError, IndexError) as error:
            raise ConfigError(f"The override {override!r} does not fit: {_first_line(error)}.") from None
    try:
        return OmegaConf.to_container(tree, resolve=True)
    except OmegaConfBaseException as error:
        raise ConfigFileError(f"A reference cannot be resolved: {_first_line(error)}.") from None


def correction_from(name_or_file: str, overrides: Iterable[str] = ()) -> Correction:
    """A correction by preset name (overrides are its parameters) or from a YAML file (overrides are dotted keys)."""
    chosen = list(overrides)
    if Path(name_or_file).suffix in (".yaml", ".yml", ".json") or Path(name_or_file).is_file():
        return load(Correction, name_or_file, chosen)
    parameters = _overridden(OmegaConf.create({}), chosen)
    return preset(name_or_file, **{str(key): value for key, value in parameters.items()})


def to_yaml(value: Config) -> str:
    """The YAML text that `load` reads back to an equal value."""
    return OmegaConf.to_yaml(OmegaConf.create(value.settings()))


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__).rstrip(".")
