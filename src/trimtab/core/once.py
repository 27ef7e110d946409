"""Values that are worked out when they are first read, and then kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

from trimtab.errors import UnknownMetricError, nearest

Value = TypeVar("Value")
_KEPT = 256
"""Objects that `of_identity` holds on to."""


class once(Generic[Value]):  # noqa: N801 - reads as a decorator, like `property`
    """A property worked out at its first reading: `functools.cached_property` without its lock.

    Python 3.11 takes that lock, and torch cannot compile it into a graph.
    """

    def __init__(self, make: Callable[[Any], Value]) -> None:
        self.make, self.name, self.__doc__ = make, make.__name__, make.__doc__

    @overload
    def __get__(self, thing: None, owner: type) -> once[Value]: ...
    @overload
    def __get__(self, thing: object, owner: type | None = None) -> Value: ...
    def __get__(self, thing: object | None, owner: type | None = None) -> once[Value] | Value:
        if thing is None:
            return self
        found = self.make(thing)
        object.__setattr__(thing, self.name, found)  # found before this descriptor from now on; frozen values too
        return found


class LazyMetrics(Mapping[str, Tensor]):
    """A read-only dict of 0-d tensors; a value is worked out, with the others of its section, when it is first read."""

    def __init__(self, sections: Mapping[str, Callable[..., dict[str, Tensor]]]) -> None:
        self.sections = sections
        self._found: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        known = self._found.get(name)
        if known is not None:
            return known
        if name not in self.sections:
            raise unknown_metric(name, self)
        self._found.update(self.section_of(name))
        return self._found[name]

    def section_of(self, name: str) -> dict[str, Tensor]:
        """A metric worked out, with the others of its section."""
        with torch.no_grad():
            return self.sections[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.sections)

    def __len__(self) -> int:
        return len(self.sections)

    def __contains__(self, name: object) -> bool:
        return name in self.sections

    def __repr__(self) -> str:
        """The names by family. Values are left out: reading one may wait for a device."""
        families: dict[str, list[str]] = {}
        for name in self:
            family, _, own = name.rpartition("/")
            families.setdefault(family, []).append(own)
        lines = [f"  {f'{family}/: ' if family else ''}{', '.join(names)}" for family, names in families.items()]
        return "\n".join(
            [f"{len(self)} metrics, each worked out when it is read: metrics[{next(iter(self))!r}].item()", *lines]
        )


def unknown_metric(name: object, known: Iterable[str]) -> UnknownMetricError:
    """The error that names the nearest metric."""
    return UnknownMetricError(f"There is no metric {name!r} here. {nearest(name, known)}")


def of_identity(make: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """A decorator: what is made of a frozen value is made once for each object. A value's own hash reads all of its fields."""
    known: dict[int, tuple[object, Value]] = {}

    @wraps(make)
    def found(thing: Any) -> Value:
        if torch.compiler.is_compiling():  # a graph knows no identities
            return make(thing)
        entry = known.get(id(thing))
        if entry is None:
            if len(known) >= _KEPT:
                known.clear()
            entry = known[id(thing)] = thing, make(thing)  # with the thing, so that no other gets its id
        return entry[1]

    return found
