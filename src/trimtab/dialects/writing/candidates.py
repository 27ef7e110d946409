"""Settings that might say a correction, those among them that do, and what can be said where none does."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Literal

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.dialects.equivalence import Agreement, agreement, as_gate, canonical, is_same, rejecting, remember, zeroing
from trimtab.dialects.framework import Dialect
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Offer, Reading
from trimtab.dialects.registry import dialect_of
from trimtab.errors import ConfigError
from trimtab.explain.gate_words import UNITS, metric_name, statistic, varying_bounds


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


# ── offers ────────────────────────────────────────────────────────────────────────────────────────────────────────────
# What a framework can say in place of a correction that it cannot, the least loss first.

MOST_OFFERS = 2
Changed = Iterator[tuple[str, Correction]]


def offers(dialect: Dialect, rule: Correction) -> tuple[Offer, ...]:
    """The first few corrections near this one that the framework can say, with its settings for them."""
    found: list[Offer] = []
    for words, other in _others(dialect, rule):
        settings = settings_for(dialect, other)
        if settings and len(found) < MOST_OFFERS:
            found.append(Offer(words, other, as_tree(settings[0])))
    return tuple(found)


def gate_words(gate: Gate) -> str:
    """A gate by what it tests, of which unit, and when."""
    where = "" if gate.when == "always" else f" that acts on {gate.when.replace('_', ' ')}"
    tested = metric_name(gate) if gate.agg is None else f"{metric_name(gate)} ({statistic(gate)})"
    kept = "" if gate.agg != "budget" else " that always keeps one" if gate.strict else " that may keep none"
    return f"gate on {tested} of {UNITS[gate.level]}{where}{kept}"


def _with_constants(rule: Correction) -> Changed:
    """The same with the numbers it names in place of scaled ones; nothing where it names none."""
    parts = [*rule.gates, *([] if rule.weight is None else [rule.weight])]
    if all(part.bounds is None for part in parts):
        gates = tuple(gate.but(bound_scale="none") for gate in rule.gates)
        weight = None if rule.weight is None else rule.weight.but(bound_scale="none")
        yield "the same with constant bounds", rule.but(gates=gates, weight=weight)


def _others(dialect: Dialect, rule: Correction) -> Changed:
    if varying_bounds(rule) is not None:
        yield from _with_constants(rule)
        return
    if rule.centering is not None:
        rule = rule.but(centering=None)
        yield "the same without centering", rule
    yield from _other_vetoes(rule)
    yield from _other_budgets(rule)
    if rule.weight is not None:
        yield from _other_weights(rule, rule.weight)
    for count in range(1, len(rule.gates) + 1):
        for dropped in itertools.combinations(rule.gates, count):
            rest = tuple(each for each in rule.gates if each not in dropped)
            if rest or (rule.weight is not None and rule.weight.level != "one"):
                yield (
                    f"the same without {' and '.join(f'the {gate_words(each)}' for each in dropped)}",
                    rule.but(gates=rest),
                )
                yield from _with_weight(dialect, rule.but(gates=rest), dropped)


def _with_weight(dialect: Dialect, rest: Correction, dropped: tuple[Gate, ...]) -> Changed:
    """Some gates come only with a weight: the same gates with one that the framework has."""
    if settings_for(dialect, rest) or rest.weight is None:
        return
    for words, other in _other_weights(rest, rest.weight):
        yield f"{words}, without {' and '.join(f'the {gate_words(each)}' for each in dropped)}", other


def _exchange(rule: Correction, gate: Gate, other: Gate) -> Correction:
    return rule.but(gates=tuple(other if each is gate else each for each in rule.gates))


def _other_vetoes(rule: Correction) -> Changed:
    for gate in rule.gates:
        for words, other in _vetoes(gate):
            yield f"{words} in place of the veto", _exchange(rule, gate, other)


def _other_budgets(rule: Correction) -> Changed:
    for gate in rule.gates:
        if gate.agg == "budget":
            words = f"the same with strict {'false' if gate.strict else 'true'}"
            yield words, _exchange(rule, gate, gate.but(strict=not gate.strict))


def _other_weights(rule: Correction, weight: Weight) -> Changed:
    """The weight unbounded, or of another level."""
    bare = Weight(level=weight.level, limit=weight.limit, scope=weight.scope)
    if bare != weight:
        yield f"the same with {weight.level} weights that nothing bounds", rule.but(weight=bare)
    limit = None if weight.limit is None else weight.limit.but(at="token")
    levels: tuple[Literal["token", "geometric", "sequence"], ...] = ("token", "geometric", "sequence")
    for level in levels:
        if level != weight.level:
            yield f"the same with {level} weights", rule.but(weight=weight.but(level=level, limit=limit))


def _vetoes(gate: Gate) -> Iterator[tuple[str, Gate]]:
    """A veto on any token's ratio as one that looks down only, or as a bound on the largest ℓ²/2, as wide as its wider side."""
    if gate.agg != "every" or gate.metric != "ratio":
        return
    if gate.lower is not None and gate.upper is not None:
        yield f"one on any r below {gate.lower:g} only", gate.but(upper=None)
    size = max(abs(math.log(bound)) for bound in (gate.lower, gate.upper) if bound)
    other = Gate(metric="k2", level="sequence", agg="max", upper=float(f"{size**2 / 2:.6g}"), action=gate.action)
    outside = f"any r outside [{math.exp(-size):.4g}, {math.exp(size):.4g}]"
    yield f"a {gate_words(other)} up to {other.upper:g} ({outside})", other
