"""Settings by dotted path."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from trimtab.config.algebra import Correction
from trimtab.config.presets import preset, preset_names
from trimtab.errors import ConfigError, ConfigWarning


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
    """The settings in which several runs differ, each with its value in every run; `–` where a run does not have it.

    Corrections that are built differently are one setting each, not a row for every field that the other does not have.
    """
    leaves = [dict(settings_by_path(each)) for each in settings]
    if len({frozenset(path for path in each if path.startswith("correction")) for each in leaves}) > 1:
        leaves = [dict(settings_by_path(_with_rule_in_short(each))) for each in settings]
    paths = dict.fromkeys(path for each in leaves for path in each)
    rows = [(path, [each.get(path, "–") for each in leaves]) for path in paths]
    return [(path, values) for path, values in rows if any(value != values[0] for value in values[1:])]


def _with_rule_in_short(settings: Mapping[str, object]) -> Mapping[str, object]:
    """Settings with the correction by its name, or what it sets on one line where it has none."""
    given = settings.get("correction")
    if not isinstance(given, Mapping):
        return settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        try:
            rule = Correction.from_settings(cast("Mapping[str, object]", given))
        except ConfigError:  # of another version, or edited
            return settings
        name = next((name for name in preset_names() if preset(name) == rule), None)
    return {**settings, "correction": name or json.dumps(rule.settings(), ensure_ascii=False)}
