"""Scenarios: a few lines of YAML each, over the settings that all cells share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from pydantic import Field

from trimtab.config.base import Config
from trimtab.config.files import load, plain_settings
from trimtab.errors import ConfigError, UnknownNameError, nearest

CONTROL = "control"
UNCORRECTED = "off"
"""The correction whose control all others are held against."""
_SHIPPED = resources.files("trimtab.lab") / "scenarios"
_BASE = "base"


class Scenario(Config):
    """What makes it hard for a policy to learn."""

    name: str = Field(default="", description="How tables call it. If not set: the name of its file.")
    meaning: str = Field(default="", description="One sentence for the reader of a table.")
    corrections: tuple[str, ...] | None = Field(
        default=None, description="The only corrections it is run with. If not set: those of the lab."
    )
    needs: str | None = Field(default=None, description="A module that must be installed to run it; none if not set.")
    train: Mapping[str, Any] = Field(default={}, description="Settings of the training that differ from the base.")


DEFAULT_SCENARIOS = ("stale", "quantized", "both")
"""Run where none is named."""


def scenario_names() -> list[str]:
    """Those that come with the package, a file each beside the settings that all share; the control first."""
    names = sorted(each.name.removesuffix(".yaml") for each in _SHIPPED.iterdir() if each.name.endswith(".yaml"))
    return list(dict.fromkeys((CONTROL, *DEFAULT_SCENARIOS, *(name for name in names if name != _BASE))))


def scenario(name_or_file: str) -> Scenario:
    """A scenario of ours by name, or of a user's own from a YAML file."""
    if name_or_file in scenario_names():
        with resources.as_file(_SHIPPED / f"{name_or_file}.yaml") as path:
            return load(Scenario, path).but(name=name_or_file)
    if not name_or_file.endswith((".yaml", ".yml")):
        raise UnknownNameError(
            f"There is no scenario {name_or_file!r}. {nearest(name_or_file, scenario_names())} "
            "One of your own is a YAML file with `train:`."
        )
    chosen = load(Scenario, name_or_file)
    chosen = chosen if chosen.name else chosen.but(name=Path(name_or_file).stem)
    if chosen.name in scenario_names():
        raise ConfigError(f"{name_or_file}: Scenario needs a name of its own, got {chosen.name!r}. Rename it.")
    return chosen


def check_needs(scenarios: Iterable[Scenario]) -> None:
    """Refuse, before anything runs, a scenario whose module is not installed."""
    for each in scenarios:
        if each.needs is not None and find_spec(each.needs) is None:
            raise ConfigError(
                f"Scenario {each.name} needs the module {each.needs}, got none. Install the extra of that name, or leave it out."
            )


def base_settings(overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The settings all cells share, after `key=value` overrides."""
    with resources.as_file(_SHIPPED / f"{_BASE}.yaml") as path:
        return plain_settings(path, overrides)


def merge_settings(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`, section by section."""
    merged = dict(under)
    for name, value in over.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[name] = merge_settings(cast("Mapping[str, Any]", below), cast("Mapping[str, Any]", value))
        else:
            merged[name] = value
    return merged
