"""Readers of losses and advantages turned round: the settings under which a framework reads as what is wanted.

No table says how our values are written in a framework's keys. Names are tried until the reader answers with the wanted kind, then
numbers are solved for (`solve`), and reading back decides. What values to try is in the keys, for flags and choices, and for the rest
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
from typing import Any

from trimtab.dialects.fields import Fields, agrees, is_number
from trimtab.dialects.framework import Dialect, Key
from trimtab.dialects.values import UNSAID, flag
from trimtab.dialects.writing.search import Search, Settings, with_values
from trimtab.dialects.writing.solve import solve


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
