"""One part of a framework's settings as a search sees it: what may be said, how it reads, and how far that is from the goal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab.dialects.fields import Fields, differences, fields_of, is_number, is_soft
from trimtab.dialects.framework import Dialect, Given, Key
from trimtab.dialects.parts import as_group_estimator
from trimtab.dialects.values import UNSAID, Choice, flag
from trimtab.errors import ConfigError

ON = 0.125

Settings = dict[str, Any]
"""Label of a key → its value; what is left out is not in it."""

MOST_READ = 20_000
_READ: dict[tuple[str, str, frozenset[tuple[str, str]]], Fields | None] = {}
"""What the readers answered: every search begins with the same questions."""


@dataclass(frozen=True)
class Search:
    """One part of one framework's settings, sought."""

    dialect: Dialect
    part: str
    goal: Fields
    pinned: Mapping[str, Any]
    """What other parts have said already."""
    preferred: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the user wrote, where these are settings of the same framework: kept where it makes no difference."""

    @property
    def keys(self) -> list[Key]:
        """The keys that may be said, those of other parts that this one reads included."""
        parts = (self.part, "other")
        return [
            key
            for key in self.dialect.keys
            if (key.part in parts or self.part in key.chooses) and not key.legacy and key.label not in self.pinned
        ]

    def given(self, settings: Mapping[str, Any]) -> Given:
        """These values as the reader sees them."""
        return Given(self.dialect, {**self.pinned, **settings}, {}, documented=False, width=None)

    def read(self, settings: Mapping[str, Any]) -> Fields | None:
        """What the reader makes of them; None where it refuses."""
        values = {**self.pinned, **settings}
        key = (self.dialect.name, self.part, frozenset((label, repr(value)) for label, value in values.items()))
        if key not in _READ:
            if len(_READ) > MOST_READ:
                _READ.clear()
            _READ[key] = self._read(settings)
        return _READ[key]

    def _read(self, settings: Mapping[str, Any]) -> Fields | None:
        try:
            if self.part == "advantage":
                reader = self.dialect.advantage_of
                return None if reader is None else fields_of(as_group_estimator(reader(self.given(settings))))
            return None if self.dialect.loss_of is None else fields_of(self.dialect.loss_of(self.given(settings)))
        except (ConfigError, TypeError, ValueError):
            return None

    def options(self, key: Key) -> tuple[Any, ...]:
        """Every value of a key that chooses, left out first; nothing for a number."""
        if key.options:
            return key.options
        if key.toggle:
            return (UNSAID if not key.default else 0.0, ON)
        if key.kind is flag:
            return (UNSAID, not key.default)
        return (UNSAID, *key.kind.names) if isinstance(key.kind, Choice) else ()

    def off(self, settings: Mapping[str, Any]) -> list[str]:
        """The fields in which settings miss the goal, remarks left aside."""
        return [path for path in differences(self.goal, self.read(settings) or {}) if not is_soft(path)]

    def distance(self, settings: Mapping[str, Any]) -> tuple[float, ...]:
        """How far settings are from the goal while numbers are still open: its kind, other kinds, fields, remarks, numbers."""
        found = self.read(settings)
        if found is None:
            return (float("inf"),)
        off = differences(self.goal, found)
        loose = {path for path, ends in off.items() if all(is_number(end) for end in ends)}
        hard = [path for path in off if path not in loose and not is_soft(path)]
        kinds = sum("." not in path for path in hard)
        return tuple(map(float, (self.part in off, kinds, len(hard), len(off) - len(hard) - len(loose), len(loose))))


def with_values(settings: Settings, more: Mapping[str, Any]) -> Settings:
    """Settings with more of them; what is unsaid is left out."""
    return {label: value for label, value in {**settings, **more}.items() if value is not UNSAID}
