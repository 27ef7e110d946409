"""Numbers found: a key is moved, the field that follows it is watched, and the key is put where the field meets the goal.

Every field of ours is a number of theirs times a slope plus a start, so two probes give the line. A worked example, AReaL's CISPO,
whose `loss.lower` is 1 − eps_clip, with the goal 0.8:

    eps_clip 0.25 reads as loss.lower 0.75 ┐  slope (0.5 − 0.75) / (0.5 − 0.25) = −1
    eps_clip 0.5  reads as loss.lower 0.5  ┘  start 0.75 − (−1)·0.25 = 1
    goal loss.lower 0.8                    →  eps_clip (0.8 − 1) / −1 = 0.2, written with the fewest digits that read back as 0.8
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

from trimtab.dialects.equivalence import OPEN
from trimtab.dialects.fields import LIMITS, Fields, agrees, differences, is_number
from trimtab.dialects.framework import Key
from trimtab.dialects.values import UNSAID, number, numbers, whole
from trimtab.dialects.writing.search import Search, Settings, with_values

PROBES = {number: (0.25, 0.5, 0.75, 1.5, 2.5, 3.5), whole: (2, 3, 50, 60, 2000, 2050)}
"""Values tried two at a time: within [0, 1] first, then above 1."""


def solve(search: Search, settings: Settings, key: Key) -> Any:
    """The value of a key that brings its field to the goal; unsaid where no field follows it."""
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
