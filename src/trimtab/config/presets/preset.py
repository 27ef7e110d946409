"""A preset: a function from a few numbers to a correction, with its story."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from trimtab.config.base import excerpt
from trimtab.config.correction import Correction
from trimtab.errors import ConfigError, UnknownNameError, nearest


@dataclass(frozen=True)
class Preset:
    """A function from a few numbers to a Correction, with its story."""

    name: str
    build: Callable[..., Correction]
    meaning: str
    source: str
    called: dict[str, str] = field(default_factory=dict[str, str])
    numbers: str = ""  # whose its default numbers are, where the source does not give them
    two_policies: bool = True  # whether it has a bypass form

    @property
    def parameters(self) -> dict[str, float | None]:
        """Name and default of each number it takes."""
        return {name: parameter.default for name, parameter in inspect.signature(self.build).parameters.items()}

    def __call__(self, /, **parameters: Any) -> Correction:
        """The correction with these numbers in place of the defaults."""
        for given in parameters:
            if given not in self.parameters:
                raise UnknownNameError(
                    f"Preset {self.name!r} has no parameter {given!r}. {self._owner(given) or nearest(given, self.parameters)}"
                )
        numbers = {name: self._number(name, value) for name, value in parameters.items()}
        try:
            return self.build(**numbers)
        except ConfigError as error:
            settings = ", ".join(f"{name}={value!r}" for name, value in parameters.items())
            raise type(error)(f"Preset {self.name!r} with {settings}: {error}") from None

    def _number(self, parameter: str, value: object) -> float | None:
        may_be_open = "None" in str(inspect.signature(self.build).parameters[parameter].annotation)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if value is None and may_be_open:
            return None
        rule = "a number, or null to leave that side open" if may_be_open else "a number"
        raise ConfigError(f"Preset {self.name!r} needs {parameter} to be {rule}, got {excerpt(value)}.")

    def _owner(self, parameter: str) -> str:
        """Where a parameter belongs that this preset lacks and a sibling built on it has."""
        from trimtab.config.presets import PRESETS  # the table is made of these

        siblings = [
            name
            for name, other in PRESETS.items()
            if name.startswith(f"{self.name}+") and parameter in other.parameters
        ]
        return f"It belongs to {' and '.join(siblings)}, which add a second stage." if siblings else ""
