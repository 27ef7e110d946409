"""Settings that might say a correction, and those among them that do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction
from trimtab.config.bound_words import varying_bounds
from trimtab.dialects.dialect import Dialect
from trimtab.dialects.frameworks import dialect_of
from trimtab.dialects.reader import read
from trimtab.dialects.same import Same, as_gate, is_same, plainest, rejecting, remember, sameness, zeroing
from trimtab.errors import ConfigError


def settings_for(dialect: Dialect, rule: Correction) -> list[dict[str, Any]]:
    """Settings that read back to the same decisions; those that agree in everything go first."""
    return [dict(each) for each in _settings_for(dialect.name, rule)]


@remember
def _settings_for(framework: str, rule: Correction) -> tuple[dict[str, Any], ...]:
    dialect = dialect_of(framework)
    found: list[tuple[dict[str, Any], Same, bool]] = []
    for settings in proposals(dialect, rule):
        try:
            back = read(dialect.name, as_tree(settings))
        except ConfigError:
            continue
        if back.correction is None:
            continue
        agreement = sameness(rule, back.correction)
        if agreement.weights and settings not in [each for each, *_ in found]:
            found.append((settings, agreement, is_same(rule, back.correction)))
    found.sort(key=lambda each: -sum((each[1].kept, each[1].limits, each[1].denominator, each[1].applies_to, each[2])))
    return tuple(settings for settings, *_ in found)


def proposals(dialect: Dialect, rule: Correction) -> Iterator[dict[str, Any]]:
    """Proposals for each way of writing the same correction."""
    if varying_bounds(rule) is not None:  # no framework has them
        return
    plain = plainest(rule)
    forms = [rule, plain, as_gate(rule), as_gate(plain), zeroing(plain), as_gate(zeroing(plain)), rejecting(plain)]
    for form in forms:
        if form is not None:
            yield from dialect.candidates(form)


def as_tree(settings: dict[str, Any]) -> dict[str, Any]:
    """Dotted keys as a tree."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *parents, name = path.split(".")
        place = tree
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return tree
