"""Settings by dotted path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import cast


def settings_by_path(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Leaves by dotted path, items by their place, as they are typed: correction.gates.0.upper."""
    if isinstance(value, Mapping) and value:
        for key, inner in cast("Mapping[object, object]", value).items():
            yield from settings_by_path(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)) and any(
        isinstance(inner, (Mapping, list, tuple)) for inner in cast("Sequence[object]", value)
    ):
        for place, inner in enumerate(cast("Sequence[object]", value)):
            yield from settings_by_path(inner, f"{path}.{place}")
    else:
        yield path, "null" if value is None else value


def differing_settings(settings: Sequence[Mapping[str, object]]) -> list[tuple[str, list[object]]]:
    """The settings in which several runs differ, each with its value in every run; `–` where a run does not have it."""
    leaves = [dict(settings_by_path(each)) for each in settings]
    paths = dict.fromkeys(path for each in leaves for path in each)
    rows = [(path, [each.get(path, "–") for each in leaves]) for path in paths]
    return [(path, values) for path, values in rows if any(value != values[0] for value in values[1:])]
