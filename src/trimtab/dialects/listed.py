"""Settings inside lists of sections, as TOML's `[[train.env]]` and YAML's `- key: value` write them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast


def within_lists(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value of every section in a list, by a dotted name with its number: `train.env.0.args.alpha`."""
    for key, value in settings.items():
        if isinstance(value, list):
            yield from _inside(key, cast("list[Any]", value))


def _inside(prefix: str, values: list[Any]) -> Iterator[tuple[str, Any]]:
    for place, each in enumerate(values):
        if isinstance(each, Mapping):
            yield from _below(f"{prefix}.{place}", cast("Mapping[Any, Any]", each))


def _below(prefix: str, section: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        path = f"{prefix}.{name}"
        if isinstance(value, Mapping) and value:
            yield from _below(path, cast("Mapping[Any, Any]", value))
            continue
        yield path, value
        if isinstance(value, list):
            yield from _inside(path, cast("list[Any]", value))
