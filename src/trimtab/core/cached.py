"""Values worked out once and kept: a property at its first reading, what follows from a frozen value at its first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Generic, TypeVar, overload

import torch

Value = TypeVar("Value")
_KEPT = 256
"""Objects that `cache_by_identity` holds on to."""


class cached(Generic[Value]):  # noqa: N801 - reads as a decorator, like `property`
    """A property worked out at its first reading: `functools.cached_property` without its lock.

    Python 3.11 takes that lock, and torch cannot compile it into a graph.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, thing: None, owner: type) -> cached[Value]: ...
    @overload
    def __get__(self, thing: object, owner: type | None = None) -> Value: ...
    def __get__(self, thing: object | None, owner: type | None = None) -> cached[Value] | Value:
        if thing is None:
            return self
        value = self.make(thing)
        object.__setattr__(thing, self.name, value)  # found before this descriptor from now on; frozen values too
        return value


def cache_by_identity(make: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """A decorator: the result for a frozen value is kept by the identity of the object, as a hash would read all of its fields."""
    known: dict[int, tuple[object, Value]] = {}

    @wraps(make)
    def cached_value(thing: Any) -> Value:
        if torch.compiler.is_compiling():  # a graph knows no identities
            return make(thing)
        entry = known.get(id(thing))
        if entry is None:
            if len(known) >= _KEPT:
                known.clear()
            entry = known[id(thing)] = thing, make(thing)  # with the thing, so that no other gets its id
        return entry[1]

    return cached_value
