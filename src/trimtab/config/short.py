"""The short forms a settings file may use: a preset by its name, a kind by its name, a term by its coefficient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from trimtab.config.losses import Reduction
from trimtab.config.presets import preset, preset_with


def correction_of_name(given: object) -> object:
    """A preset by name, or `preset: NAME` with its parameters; YAML 1.1 reads a bare `off` as false."""
    if given is False:
        return preset("off")
    if isinstance(given, Mapping) and "preset" in given:
        parameters = {str(key): value for key, value in cast("Mapping[object, Any]", given).items()}
        return preset_with(parameters.pop("preset"), parameters)
    return preset(given) if isinstance(given, str) else given


def kind_of_name(given: object, default: str | None = None) -> object:
    """A kind by its name alone; settings without a kind are those of the default's, where there is one."""
    if isinstance(given, str):
        return {"kind": given}
    if default is None or not isinstance(given, Mapping) or "kind" in given:
        return given
    return {"kind": default, **cast("Mapping[str, Any]", given)}


def term_of_coefficient(given: object) -> object:
    """A term by its coefficient alone."""
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    return {"coefficient": given} if is_number else given


def reduction_of_mode(given: object) -> object:
    """A reduction by its mode alone."""
    return None if given is None else Reduction.from_settings(given)
