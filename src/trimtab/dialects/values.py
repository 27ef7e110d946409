"""What a setting may hold: a number, a flag, one of several names. Each kind takes the setting's name and what was written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, cast

from trimtab.config.base import excerpt
from trimtab.errors import ConfigError, UnknownNameError, nearest

Kind = Callable[[str, Any], Any]
"""(name, what was written) → the value, or a ConfigError."""


class Unsaid:
    """A key that is left out."""

    def __repr__(self) -> str:
        return "unsaid"


UNSAID: Final = Unsaid()


def unsaid_or(table: Iterable[str]) -> tuple[Any, ...]:
    """The names of a table as values of a key, left out first."""
    return (UNSAID, *table)


def number(path: str, value: Any) -> float:
    """A number, also as text."""
    if not isinstance(value, bool) and isinstance(value, int | float | str):
        try:
            found = float(value)
        except (ValueError, OverflowError):
            pass
        else:
            if found == found:
                return found
    raise ConfigError(f"{path} needs a number, got {excerpt(value)}.")


def positive(path: str, value: Any) -> float:
    """A number above 0."""
    found = number(path, value)
    if found <= 0:
        raise ConfigError(f"{path} needs to be above 0, got {excerpt(value)}.")
    return found


def whole(path: str, value: Any) -> int:
    """A whole number."""
    found = number(path, value)
    if math.isinf(found) or found != int(found):
        raise ConfigError(f"{path} needs a whole number, got {excerpt(value)}.")
    return int(found)


def flag(path: str, value: Any) -> bool:
    """True or false, also as text."""
    words = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
    found = value if isinstance(value, bool) else words.get(str(value).lower())
    if found is None:
        raise ConfigError(f"{path} needs true or false, got {excerpt(value)}.")
    return found


def text(path: str, value: Any) -> str:
    """Text."""
    if not isinstance(value, str):
        raise ConfigError(f"{path} needs text, got {excerpt(value)}.")
    return value


def raw(path: str, value: Any) -> Any:
    """Any value, as the user typed it; the rule looks at its type."""
    del path
    return value


def nested(path: str, value: Any) -> Any:
    """Any value, or a section of them."""
    del path
    return value


@dataclass(frozen=True)
class Choice:
    """One of these names."""

    names: tuple[str, ...]

    def __call__(self, path: str, value: Any) -> str:
        """The name that was given."""
        if str(value) in self.names:
            return str(value)
        raise UnknownNameError(
            f"{path} needs one of {', '.join(self.names)}, got {excerpt(value)}. {nearest(str(value), self.names)}"
        )


def choice(*names: str) -> Choice:
    """One of these names."""
    return Choice(names)


def numbers(path: str, value: Any) -> list[float]:
    """One number or several."""
    each = cast("list[Any]", value) if isinstance(value, list | tuple) else [value]
    return [number(path, one) for one in each]


_WORDS: dict[Kind, str] = {
    number: "a number",
    positive: "a number above 0",
    whole: "a whole number",
    flag: "true or false",
    text: "text",
    numbers: "one number or several",
}


def kind_words(kind: Kind) -> str:
    """What a key of this kind needs, in words."""
    return f"one of {', '.join(kind.names)}" if isinstance(kind, Choice) else _WORDS.get(kind, "a value")
