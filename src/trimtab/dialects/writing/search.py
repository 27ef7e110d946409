"""Readers of losses and advantages turned round: the settings under which a framework reads as what is wanted.

No table says how our values are written in a framework's keys. Names are tried until the reader answers with the wanted kind, then
numbers are solved for, and reading back decides. What values to try is in the keys, for flags and choices, and for the rest
beside them, as `options`, `joint` and `seed` of the key. A worked example, AReaL and the goal Cispo(0.8, 1.28):

    seeds     eps_clip_higher 0.2: without it AReaL refuses use_cispo_loss, so that it could not be tried
    names     use_cispo_loss, use_sapo_loss and importance_sampling_level choose together: of 2·2·3 ways two read as cispo, and
              use_cispo_loss: true alone says less than it with importance_sampling_level: token
    numbers   loss.lower follows eps_clip and loss.upper eps_clip_higher: solved, 0.2 and 0.28; nothing follows the others
    the rest  what no longer matters is left out; a name that is its key's default is said where another would read otherwise
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab.dialects.fields import LIMITS, Fields, agrees, differences, fields_of, is_number, is_soft
from trimtab.dialects.framework import Dialect, Given, Key
from trimtab.dialects.lookup import look_up
from trimtab.dialects.parts import OPEN, as_group_estimator
from trimtab.dialects.sources.settings import flat_settings
from trimtab.dialects.values import UNSAID, Choice, flag, number, numbers, whole
from trimtab.dialects.writing.candidates import as_tree
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
        return Given(self.dialect, {**self.pinned, **settings}, {}, self.dialect.version)

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


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────────────────────────

PROBES = {number: (0.25, 0.5, 0.75, 1.5, 2.5, 3.5), whole: (2, 3, 50, 60, 2000, 2050)}
"""Values tried two at a time: within [0, 1] first, then above 1."""


def solve(search: Search, settings: Settings, key: Key) -> Any:
    """The value of a key that brings its field to the goal; unsaid where no field follows it.

    Every field of ours is a number of theirs times a slope plus a start, so two probes give the line. A worked example, AReaL's CISPO,
    whose `loss.lower` is 1 − eps_clip, with the goal 0.8:

        eps_clip 0.25 reads as loss.lower 0.75 ┐  slope (0.5 − 0.75) / (0.5 − 0.25) = −1
        eps_clip 0.5  reads as loss.lower 0.5  ┘  start 0.75 − (−1)·0.25 = 1
        goal loss.lower 0.8                    →  eps_clip (0.8 − 1) / −1 = 0.2, written with the fewest digits that read back as 0.8
    """
    kind = key.holds or key.kind
    if kind is numbers:
        return _list_for(search, settings, key)
    probes = cast("tuple[float, ...]", PROBES.get(kind, ()))  # pyright: ignore[reportArgumentType, reportCallIssue]
    read = ((probe, search.read({**settings, key.label: probe})) for probe in probes)
    ends = list(itertools.islice(((probe, found) for probe, found in read if found is not None), 2))
    if len(ends) < 2:
        return UNSAID
    (low, at_low), (high, at_high) = ends
    for path in sorted(at_low, key=lambda each: each != key.field):
        one, other = at_low[path], at_high.get(path)
        spoken = path in search.goal or _is_bound_of_none(search.goal, path)
        if not spoken or agrees(one, other) or not (is_number(one) and is_number(other)):
            continue
        slope = (other - one) / (high - low)
        return _solution(search, settings, key, path, (slope, one - slope * low))
    return UNSAID


def _solution(search: Search, settings: Settings, key: Key, path: str, line: tuple[float, float]) -> Any:
    """The roundest number that gives the goal exactly; where the goal is open and the key is not, one beyond all values."""
    want = search.goal.get(path)
    unsaid = search.read(with_values(settings, {key.label: UNSAID}))
    if key.default is None and unsaid is not None and agrees(unsaid.get(path), want):
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
        if agrees((search.read({**settings, key.label: value}) or {}).get(path), search.goal.get(path)):
            return _as_kind(key, value)
    return _as_kind(key, float(f"{exact:.12g}"))


def _as_kind(key: Key, value: float) -> float | int:
    return round(value) if key.kind is whole and abs(value) < OPEN else value + 0.0  # −0.0 becomes 0.0


def _list_for(search: Search, settings: Settings, key: Key) -> Any:
    """A list of numbers: one of the goal's own, or two bounds, an open side beyond all values."""
    before = search.read({label: value for label, value in settings.items() if label != key.label})
    lists = [list(cast("Sequence[float]", each)) for each in search.goal.values() if isinstance(each, tuple | list)]
    for value in [*lists, *_bounds(search.goal)]:
        found = search.read({**settings, key.label: value})
        if found is not None and (
            before is None or len(differences(search.goal, found)) < len(differences(search.goal, before))
        ):
            return value
    return UNSAID


def _is_bound_of_none(goal: Fields, path: str) -> bool:
    """A bound in a shaping of rewards that is not wanted: it can be opened."""
    return path.startswith("shaping.") and path.endswith(("lower", "upper")) and goal.get("shaping", True) is None


def _bounds(goal: Fields) -> list[list[float]]:
    found: list[list[float]] = [[-OPEN, OPEN]] if goal.get("shaping", True) is None else []
    for path, low in goal.items():
        above = {"low": "high", "lower": "upper"}.get(path.rpartition(".")[2])
        high = goal.get(f"{path.rpartition('.')[0]}.{above}")
        if above is not None:
            found.append([-OPEN if low is None else low, OPEN if high is None else high])
    return found


# ── names ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def inverse(
    dialect: Dialect, part: str, goal: Fields, pinned: Mapping[str, Any], preferred: Mapping[str, Any] | None = None
) -> Settings:
    """The nearest settings of a part to what is wanted; whether they say it is for the reader to tell."""
    search = Search(dialect, part, goal, pinned, preferred or {})
    found = _nearest(search, {})
    for key in search.keys:
        if key.frees and search.off(found):
            found = min(found, _nearest(search, {key.label: True}), key=lambda each: len(search.off(each)))
    return _in_order(dialect, _worth_saying(search, found))


def _nearest(search: Search, fixed: Settings) -> Settings:
    """Names chosen, then numbers moved to the goal, beside what is fixed."""
    settings = _seeds(search)
    guesses = {key.label: search.goal.get(key.field) for key in search.keys if key.field}
    settings |= {label: value for label, value in guesses.items() if is_number(value)} | fixed
    for group in _groups(search):
        settings = _choose(search, settings, [key for key in group if key.label not in fixed])
    for key in search.keys:
        if not search.options(key) or (is_number(settings.get(key.label)) and settings[key.label]):
            solved = with_values(settings, {key.label: solve(search, settings, key)})
            # A number never costs the kind that names chose.
            if search.distance(solved)[:2] <= search.distance(settings)[:2]:
                settings = solved
    return settings


def _seeds(search: Search) -> Settings:
    """The values to begin with."""
    return {key.label: key.seed for key in search.keys if key.seed is not None}


def _groups(search: Search) -> list[list[Key]]:
    """Keys that choose, those that choose together in one group: first those that a key of this part leads."""
    own = {key.label: key for key in search.keys if search.options(key)}
    leads = sorted((key for key in own.values() if key.joint), key=lambda key: key.part != search.part)
    joint = [(key.label, *key.joint) for key in leads]
    groups = [[own.pop(label) for label in names if label in own] for names in joint]
    return [group for group in groups if group] + [[key] for key in own.values()]


def _choose(search: Search, settings: Settings, group: Sequence[Key]) -> Settings:
    """The values of a group that come nearest; among equals the one that says nothing, else the one with the fewest remarks."""
    tried: list[tuple[tuple[float, ...], Settings]] = []
    for values in itertools.product(*(search.options(key) for key in group)):
        attempt = with_values(settings, {key.label: value for key, value in zip(group, values, strict=True)})
        tried.append((search.distance(attempt), attempt))
    best = min(distance for distance, _ in tried)
    equals = [attempt for distance, attempt in tried if distance == best]
    if search.preferred:
        most = max(_kept_words(search, attempt, group) for attempt in equals)
        return next(attempt for attempt in equals if _kept_words(search, attempt, group) == most)
    if tried[0][0] == best or len(equals) == 1:
        return equals[0]
    return min(equals, key=lambda each: _remarks(search, each))


def _kept_words(search: Search, settings: Settings, group: Sequence[Key]) -> int:
    """How many keys of a group hold what the user wrote, or are left out as the user did."""
    return sum(settings.get(key.label, UNSAID) == search.preferred.get(key.label, UNSAID) for key in group)


def _remarks(search: Search, settings: Settings) -> int:
    given = search.given(settings)
    return sum(remark.level != "note" and bool(remark.when(given)) for remark in search.dialect.remarks)


def _worth_saying(search: Search, settings: Settings) -> Settings:
    """Names said out loud also where they are the default, and idle keys left out."""
    before = search.read(settings)
    for key in search.keys:
        here = settings.get(key.label, key.default)
        others = [value for value in search.options(key) if value is not UNSAID and value != here]
        attempts = [
            attempt for value in others if search.read(attempt := with_values(settings, {key.label: value})) is not None
        ]
        matters = any(not _same(search, before, attempt) for attempt in attempts)
        if not matters and key.label in settings and _same(search, before, with_values(settings, {key.label: UNSAID})):
            if search.options(key):
                del settings[key.label]
        elif matters and key.label not in settings and isinstance(key.default, str) and key.part == search.part:
            loud = {**settings, key.label: key.default}
            settings = loud if _same(search, before, loud) else settings
    return settings or {key.label: key.default for key in search.keys if key.part == search.part and key.kind is flag}


def _same(search: Search, before: Fields | None, settings: Settings) -> bool:
    found = search.read(settings)
    return found == before if before is None or found is None else not _differ(search, before, found)


def _differ(search: Search, one: Fields, other: Fields) -> bool:
    """Whether two readings differ in what the goal speaks of."""
    tops = {path.partition(".")[0] for path in search.goal}
    return any(not agrees(one.get(path), other.get(path)) for path in {*one, *other} if path.partition(".")[0] in tops)


def _in_order(dialect: Dialect, settings: Settings) -> Settings:
    return {key.label: settings[key.label] for key in dialect.keys if key.label in settings}


def kinds(dialect: Dialect, part: str) -> tuple[str, ...]:
    """The kinds of loss or estimator a framework has, by our names."""
    search = Search(dialect, part, {part: "?"}, {})
    settings = _seeds(search)
    found: dict[str, None] = {}
    for group in _groups(search):
        for values in itertools.product(*(search.options(key) for key in group)):
            found_fields = search.read(
                with_values(settings, {key.label: value for key, value in zip(group, values, strict=True)})
            )
            if found_fields is not None and found_fields.get(part) is not None:
                found[str(found_fields[part])] = None
    return tuple(found)


# ── which key a field hangs on ────────────────────────────────────────────────────────────────────────────────────────
# The one that moves it when it is given another value.


def key_behind(dialect: Dialect, part: str, settings: dict[str, Any], path: str) -> tuple[str, bool]:
    """The key for a field, and whether it moves the field itself or only chooses the loss or estimator that has it."""
    values = dict(look_up(dialect, flat_settings(as_tree(settings))).values) if settings else {}
    search = Search(dialect, part, {part: "?"}, {})
    here = search.read(values) or {}
    own = sorted((key for key in search.keys if key.part == part), key=lambda key: key.label not in values)
    for key in own:
        if any(_moves(found, here, part, path) for found in _others(search, values, key)):
            return key.path, True
    for key in own:
        if key.label in values and any(found.get(part) != here.get(part) for found in _others(search, values, key)):
            return key.path, False
    return next((key.path for key in own if key.label in values), ""), False


def _others(search: Search, values: dict[str, Any], key: Key) -> list[Fields]:
    """What the reader makes of the settings with another value of a key."""
    tried = search.options(key) or (UNSAID, *PROBES.get(key.kind, ()))  # pyright: ignore[reportArgumentType, reportCallIssue]
    read = (search.read(with_values(values, {key.label: value})) for value in tried)
    return [found for found in read if found is not None]


def _moves(found: Fields, here: Fields, part: str, path: str) -> bool:
    """Whether the field alone is another; a key that exchanges the whole loss or estimator moves everything."""
    same_kind = found.get(part) == here.get(part)
    return same_kind and not agrees(found.get(path), here.get(path))
