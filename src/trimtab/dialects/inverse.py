"""Readers of losses and advantages turned round: the settings under which a framework reads as what is wanted.

There is no second table. Names are tried until the reader answers with the wanted kind; numbers are found by moving one key at a
time and watching which field follows, since every field is a key times a number plus a number. Reading back decides.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from trimtab.dialects.dialect import Dialect, Given, Key
from trimtab.dialects.hints import UNSAID, Hints
from trimtab.dialects.leaves import LIMITS, Leaves, agrees, differences, is_number, is_soft, plain
from trimtab.dialects.same import OPEN
from trimtab.dialects.values import Choice, flag, number, numbers, whole
from trimtab.errors import ConfigError

PROBES = {number: (0.25, 0.5, 0.75, 1.5, 2.5, 3.5), whole: (2, 3, 50, 60, 2000, 2050)}
"""Values tried two at a time: within [0, 1] first, then above 1."""
ON = 0.125

Said = dict[str, Any]
"""Label of a key → its value; what is left out is not in it."""


MOST_READ = 20_000
_READ: dict[tuple[str, str, frozenset[tuple[str, str]]], Leaves | None] = {}
"""What the readers answered: every search begins with the same questions."""


@dataclass(frozen=True)
class Inverse:
    """One part of one framework's settings, sought."""

    speech: Dialect
    part: str
    goal: Leaves
    pinned: Mapping[str, Any]
    """What other parts have said already."""

    @property
    def hints(self) -> Hints:
        """What the search has to know about the framework."""
        return self.speech.hints

    @property
    def keys(self) -> list[Key]:
        """The keys that may be said, those of other parts that this one reads included."""
        also = self.hints.reads.get(self.part, ())
        parts = (self.part, "other")
        return [
            key
            for key in self.speech.keys
            if (key.part in parts or key.label in also) and not key.legacy and key.label not in self.pinned
        ]

    def given(self, said: Mapping[str, Any]) -> Given:
        """These values as the reader sees them."""
        return Given(self.speech, {**self.pinned, **said}, {}, documented=False, width=None)

    def read(self, said: Mapping[str, Any]) -> Leaves | None:
        """What the reader makes of them; None where it refuses."""
        values = {**self.pinned, **said}
        key = (self.speech.name, self.part, frozenset((label, repr(value)) for label, value in values.items()))
        if key not in _READ:
            if len(_READ) > MOST_READ:
                _READ.clear()
            _READ[key] = self._read(said)
        return _READ[key]

    def _read(self, said: Mapping[str, Any]) -> Leaves | None:
        reader = self.speech.loss_of if self.part == "loss" else self.speech.advantage_of
        try:
            return None if reader is None else plain(reader(self.given(said)))
        except (ConfigError, TypeError, ValueError):
            return None

    def options(self, key: Key) -> tuple[Any, ...]:
        """Every value of a key that chooses, left out first; nothing for a number."""
        if key.label in self.hints.options:
            return self.hints.options[key.label]
        if key.label in self.hints.toggles:
            return (UNSAID if not key.default else 0.0, ON)
        if key.kind is flag:
            return (UNSAID, not key.default)
        return (UNSAID, *key.kind.names) if isinstance(key.kind, Choice) else ()

    def off(self, said: Mapping[str, Any]) -> list[str]:
        """The fields in which settings miss the goal, remarks left aside."""
        return [path for path in differences(self.goal, self.read(said) or {}) if not is_soft(path)]

    def distance(self, said: Mapping[str, Any]) -> tuple[float, ...]:
        """How far settings are from the goal while numbers are still open: kinds, then fields, then remarks, then numbers."""
        found = self.read(said)
        if found is None:
            return (float("inf"),)
        off = differences(self.goal, found)
        loose = {path for path, ends in off.items() if all(isinstance(end, int | float) for end in ends)}
        hard = [path for path in off if path not in loose and not is_soft(path)]
        kinds = sum("." not in path for path in hard)
        return tuple(map(float, (kinds, len(hard), len(off) - len(hard) - len(loose), len(loose))))


def inverse(speech: Dialect, part: str, goal: Leaves, pinned: Mapping[str, Any]) -> Said:
    """The nearest settings of a part to what is wanted; whether they say it is for the reader to tell."""
    sought = Inverse(speech, part, goal, pinned)
    found = _settled(sought, {})
    for label in sought.hints.frees:
        if sought.off(found) and label in {key.label for key in sought.keys}:
            found = min(found, _settled(sought, {label: True}), key=lambda each: len(sought.off(each)))
    return _ordered(speech, _named(sought, found))


def _settled(sought: Inverse, fixed: Said) -> Said:
    """Names chosen, then numbers moved to the goal, beside what is fixed."""
    labels = {key.label for key in sought.keys}
    guesses = {label: sought.goal.get(path) for label, path in sought.hints.follows.items()}
    said: Said = {label: value for label, value in sought.hints.seeds.items() if label in labels}
    said |= {label: value for label, value in guesses.items() if label in labels and is_number(value)} | fixed
    for group in _groups(sought):
        said = _chosen(sought, said, [key for key in group if key.label not in fixed])
    for key in sought.keys:
        if not sought.options(key) or (is_number(said.get(key.label)) and said[key.label]):
            said = _with(said, {key.label: _solved(sought, said, key)})
    return said


def _groups(sought: Inverse) -> list[list[Key]]:
    """Keys that choose, those that choose together in one group."""
    own = {key.label: key for key in sought.keys if sought.options(key)}
    joint = [names for names in sought.hints.joint if names[0] in own]
    groups = [[own.pop(label) for label in names if label in own] for names in joint]
    return [group for group in groups if group] + [[key] for key in own.values()]


def _chosen(sought: Inverse, said: Said, group: Sequence[Key]) -> Said:
    """The values of a group that come nearest; among equals the one that says nothing, else the one with the fewest remarks."""
    tried: list[tuple[tuple[float, ...], Said]] = []
    for values in itertools.product(*(sought.options(key) for key in group)):
        attempt = _with(said, {key.label: value for key, value in zip(group, values, strict=True)})
        tried.append((sought.distance(attempt), attempt))
    best = min(distance for distance, _ in tried)
    equals = [attempt for distance, attempt in tried if distance == best]
    if tried[0][0] == best or len(equals) == 1:
        return equals[0]
    return min(equals, key=lambda each: _remarks(sought, each))


def _with(said: Said, more: Mapping[str, Any]) -> Said:
    return {label: value for label, value in {**said, **more}.items() if value is not UNSAID}


def _remarks(sought: Inverse, said: Said) -> int:
    given = sought.given(said)
    return sum(remark.level != "note" and bool(remark.when(given)) for remark in sought.speech.remarks)


# ── numbers ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _solved(sought: Inverse, said: Said, key: Key) -> Any:
    """The value of a key that brings its field to the goal; unsaid where no field follows it."""
    kind = sought.hints.kinds.get(key.label, key.kind)
    if kind is numbers:
        return _listed(sought, said, key)
    probes = cast("tuple[float, ...]", PROBES.get(kind, ()))  # pyright: ignore[reportArgumentType, reportCallIssue]
    read = ((probe, sought.read({**said, key.label: probe})) for probe in probes)
    ends = list(itertools.islice(((probe, found) for probe, found in read if found is not None), 2))
    if len(ends) < 2:
        return UNSAID
    (low, at_low), (high, at_high) = ends
    follows = sought.hints.follows.get(key.label)
    for path in sorted(at_low, key=lambda each: each != follows):
        one, other = at_low[path], at_high.get(path)
        spoken = path in sought.goal or _is_bound_of_none(sought.goal, path)
        if not spoken or agrees(one, other) or not (is_number(one) and is_number(other)):
            continue
        slope = (other - one) / (high - low)
        return _reached(sought, said, key, path, (slope, one - slope * low))
    return UNSAID


def _reached(sought: Inverse, said: Said, key: Key, path: str, line: tuple[float, float]) -> Any:
    """The roundest number that gives the goal exactly; where the goal is open and the key is not, one beyond all values."""
    want = sought.goal.get(path)
    if key.default is None and agrees((sought.read(_with(said, {key.label: UNSAID})) or {}).get(path), want):
        return UNSAID
    if want is None and path.rpartition(".")[2] in LIMITS:
        return None
    if want is None and path == "loss.lower":
        want = 0.0  # no ratio lies below
    if want is None:
        return UNSAID if key.default is None else OPEN
    if not isinstance(want, int | float):
        return UNSAID
    slope, start = line
    exact = (float(want) - start) / slope
    for digits in (6, 9, 12, 15, 17):
        value = float(f"{exact:.{digits}g}")
        if agrees((sought.read({**said, key.label: value}) or {}).get(path), sought.goal.get(path)):
            return _typed(key, value)
    return _typed(key, float(f"{exact:.12g}"))


def _typed(key: Key, value: float) -> float | int:
    return round(value) if key.kind is whole and abs(value) < OPEN else value


def _listed(sought: Inverse, said: Said, key: Key) -> Any:
    """A list of numbers: one of the goal's own, or two bounds, an open side beyond all values."""
    before = sought.read({label: value for label, value in said.items() if label != key.label})
    lists = [list(cast("Sequence[float]", each)) for each in sought.goal.values() if isinstance(each, tuple | list)]
    for value in [*lists, *_bounds(sought.goal)]:
        found = sought.read({**said, key.label: value})
        if found is not None and (
            before is None or len(differences(sought.goal, found)) < len(differences(sought.goal, before))
        ):
            return value
    return UNSAID


def _is_bound_of_none(goal: Leaves, path: str) -> bool:
    """A bound in a shaping of rewards that is not wanted: it can be opened."""
    return path.startswith("shaping.") and path.endswith(("lower", "upper")) and goal.get("shaping", True) is None


def _bounds(goal: Leaves) -> list[list[float]]:
    found: list[list[float]] = [[-OPEN, OPEN]] if goal.get("shaping", True) is None else []
    for path, low in goal.items():
        above = {"low": "high", "lower": "upper"}.get(path.rpartition(".")[2])
        high = goal.get(f"{path.rpartition('.')[0]}.{above}")
        if above is not None:
            found.append([-OPEN if low is None else low, OPEN if high is None else high])
    return found


# ── what is worth saying ───────────────────────────────────────────────────────────────────────────────────────────────


def _named(sought: Inverse, said: Said) -> Said:
    """Names said out loud also where they are the default, and idle keys left out."""
    before = sought.read(said)
    for key in sought.keys:
        here = said.get(key.label, key.default)
        others = [value for value in sought.options(key) if value is not UNSAID and value != here]
        attempts = [attempt for value in others if sought.read(attempt := _with(said, {key.label: value})) is not None]
        matters = any(not _same(sought, before, attempt) for attempt in attempts)
        if not matters and key.label in said and _same(sought, before, _with(said, {key.label: UNSAID})):
            if sought.options(key):
                del said[key.label]
        elif matters and key.label not in said and isinstance(key.default, str) and key.part == sought.part:
            loud = {**said, key.label: key.default}
            said = loud if _same(sought, before, loud) else said
    return said or {key.label: key.default for key in sought.keys if key.part == sought.part and key.kind is flag}


def _same(sought: Inverse, before: Leaves | None, said: Said) -> bool:
    found = sought.read(said)
    return found == before if before is None or found is None else not _spoken(sought, before, found)


def _spoken(sought: Inverse, one: Leaves, other: Leaves) -> bool:
    """Whether two readings differ in what the goal speaks of."""
    tops = {path.partition(".")[0] for path in sought.goal}
    return any(not agrees(one.get(path), other.get(path)) for path in {*one, *other} if path.partition(".")[0] in tops)


def _ordered(speech: Dialect, said: Said) -> Said:
    return {key.label: said[key.label] for key in speech.keys if key.label in said}


def kinds(speech: Dialect, part: str) -> tuple[str, ...]:
    """The kinds of loss or estimator a framework has, by our names."""
    sought = Inverse(speech, part, {part: "?"}, {})
    said: Said = dict(sought.hints.seeds)
    found: dict[str, None] = {}
    for group in _groups(sought):
        for values in itertools.product(*(sought.options(key) for key in group)):
            leaves = sought.read(_with(said, {key.label: value for key, value in zip(group, values, strict=True)}))
            if leaves is not None and leaves.get(part) is not None:
                found[str(leaves[part])] = None
    return tuple(found)
