"""What a pickle gets in place of the functions, classes and objects it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StandIn:
    """In place of a function or class that a pickle names."""

    __slots__ = ("make", "name")

    def __init__(self, name: str, make: Callable[..., Any]) -> None:
        self.name, self.make = name, make


class Husk:
    """An object of a foreign class: the class's name, and the state it would have had."""

    __slots__ = ("arguments", "name", "state")

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.state: Any = None
