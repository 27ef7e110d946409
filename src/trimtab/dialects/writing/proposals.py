"""Settings that might say a correction, and those among them that do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from trimtab.config.algebra import Correction
from trimtab.dialects.equivalence import Agreement, agreement, as_gate, canonical, is_same, rejecting, remember, zeroing
from trimtab.dialects.framework import Dialect
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Reading
from trimtab.dialects.registry import dialect_of
from trimtab.errors import ConfigError
from trimtab.explain.gate_words import varying_bounds


def settings_for(dialect: Dialect, rule: Correction) -> list[dict[str, Any]]:
    """Settings that read back to the same decisions; those that agree in everything go first."""
    return [dict(each) for each in _settings_for(dialect.name, rule)]


@remember
def _settings_for(framework: str, rule: Correction) -> tuple[dict[str, Any], ...]:
    dialect = dialect_of(framework)
    found: list[tuple[dict[str, Any], Agreement, bool]] = []
    for settings in proposals(dialect, rule):
        try:
            backs = [back.correction for back in read_back(dialect, settings)]
        except ConfigError:
            continue
        found_rules = [each for each in backs if each is not None]
        if len(found_rules) < len(backs) or settings in [each for each, *_ in found]:
            continue
        if all(agreement(rule, each).weights for each in found_rules):
            found.append((settings, agreement(rule, found_rules[0]), is_same(rule, found_rules[0])))
    found.sort(key=lambda each: -sum((each[1].kept, each[1].limits, each[1].denominator, each[1].applies_to, each[2])))
    return tuple(settings for settings, *_ in found)


def read_back(dialect: Dialect, settings: dict[str, Any]) -> list[Reading]:
    """What settings compute as those of a whole run, by the framework's defaults, and under whatever else may decide of a correction."""
    own = read(dialect.name, as_tree(settings), whole=True)
    found = [own]
    for context in dialect.contexts:
        if context and not set(context) <= set(settings):
            with suppress(ConfigError):  # the settings' class has no such key
                other = read(dialect.name, as_tree({**context, **settings}), whole=True)
                found += [other] if len(other.refused) <= len(own.refused) else []
    return found


def proposals(dialect: Dialect, rule: Correction) -> Iterator[dict[str, Any]]:
    """Proposals for each way of writing the same correction."""
    if varying_bounds(rule) is not None:  # no framework has them
        return
    plain = canonical(rule)
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
