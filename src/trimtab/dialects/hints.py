"""Search hints: what a search for settings has to know about a framework and cannot see in its keys.

`inverse` turns readers of losses and advantages round by trying values. Flags and choices name theirs; hints are the table of the rest,
one in each framework's folder, made as far as possible from the tables its readers use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trimtab.dialects.values import Kind


class Unsaid:
    """A key that is left out."""

    def __repr__(self) -> str:
        return "unsaid"


UNSAID: Final = Unsaid()


@dataclass(frozen=True)
class Hints:
    """One framework's keys as a search sees them. Flags and choices speak for themselves; the rest is said here."""

    options: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    """Values of a key whose kind does not name them, or does not name all; a number among them is then moved to the goal."""
    joint: tuple[tuple[str, ...], ...] = ()
    """Keys that only together choose a loss or an estimator; every other key is chosen by itself."""
    seeds: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values under which every option reads; those that turn out idle are left out again."""
    follows: Mapping[str, str] = field(default_factory=dict[str, str])
    """Numbers that another key switches on or multiplies: the field of ours each stands for, whose value goes in first."""
    frees: tuple[str, ...] = ()
    """Flags that free a number from another, tried where numbers do not fit without."""
    kinds: Mapping[str, Kind] = field(default_factory=dict[str, Kind])
    """What a key that may hold anything holds here."""
    toggles: tuple[str, ...] = ()
    """Numbers whose 0 means off."""
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Part → keys of other parts that choose it too."""
    beside: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}
    """Keys that must stand beside those found and say nothing of ours, such as how many answers a group has."""


def names(table: Iterable[str]) -> tuple[Any, ...]:
    """The names of a table as values of a key, left out first."""
    return (UNSAID, *table)
