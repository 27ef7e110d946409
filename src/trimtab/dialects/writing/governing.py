"""Which of a framework's keys a field of ours hangs on: the one that moves it when it is given another value."""

from __future__ import annotations

from typing import Any

from trimtab.dialects.fields import Fields, agrees
from trimtab.dialects.framework import Dialect, Key
from trimtab.dialects.lookup import look_up
from trimtab.dialects.settings import flat_settings
from trimtab.dialects.values import UNSAID
from trimtab.dialects.writing.proposals import as_tree
from trimtab.dialects.writing.search import Search, with_values
from trimtab.dialects.writing.solve import PROBES


def governing(dialect: Dialect, part: str, settings: dict[str, Any], path: str) -> tuple[str, bool]:
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
