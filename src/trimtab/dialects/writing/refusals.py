"""What a framework cannot say, named; and the nearest thing it can."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.config.words import UNITS, metric_name, statistic
from trimtab.dialects.dialect import Dialect
from trimtab.dialects.fields import Fields, heads, in_words
from trimtab.dialects.writing.inverse import kinds
from trimtab.dialects.writing.proposals import settings_for

Lost = str | Callable[[], str]
"""What becomes of a part, in words; or how to find them, where that takes a search."""


def obstacle(dialect: Dialect, rule: Correction) -> str:
    """The first part that cannot be said by itself, else the combination; and the nearest that can."""
    near = list(itertools.islice(_nearest(dialect, rule), 2))
    return _in_words(dialect, rule) + (f" (nearest: {', or '.join(near)})" if near else "")


def _in_words(dialect: Dialect, rule: Correction) -> str:
    for gate in rule.gates:
        if gate.action == "clamp":
            continue
        alone = Correction(policies=rule.policies, gates=(gate,))
        if any(settings_for(dialect, alone.but(weight=weight)) for weight in (None, rule.weight)):
            continue
        named = f"a {_gate(gate)} with action {gate.action}"
        levels = ("geometric", "token", "sequence")
        forced = next((each for each in levels if settings_for(dialect, alone.but(weight=Weight(level=each)))), None)
        return named if forced is None else f"{named} without weighing what passes by its {forced} ratio"
    if rule.weight is not None and rule.weight.level != "one":
        alone = Correction(policies=rule.policies, weight=rule.weight, normalize=rule.normalize)
        if not settings_for(dialect, alone):
            normal = ", normalised" if rule.normalize else ""
            return f"a weight at level {rule.weight.level} with outside {rule.weight.outside}{normal}"
    if not rule.gates and rule.policies == "bypass" and (rule.weight is None or rule.weight.level == "one"):
        return "a ratio to behavior with nothing corrected (policies bypass)"
    names = [f"{metric_name(gate)} of {UNITS[gate.level]}" for gate in rule.gates]
    weight = rule.weight.level if rule.weight is not None else "one"
    return (
        f"this combination: gates on {', '.join(names) or 'nothing'} with a weight at level {weight} ({rule.policies})"
    )


def _gate(gate: Gate) -> str:
    where = "" if gate.when == "always" else f" that acts on {gate.when.replace('_', ' ')}"
    tested = metric_name(gate) if gate.agg is None else f"{metric_name(gate)} ({statistic(gate)})"
    kept = "" if gate.agg != "budget" else " that always keeps one" if gate.strict else " that may keep none"
    return f"gate on {tested} of {UNITS[gate.level]}{where}{kept}"


def _nearest(dialect: Dialect, rule: Correction) -> Iterator[str]:
    """What the framework could say instead, the least loss first."""
    yield from _other_vetoes(dialect, rule)
    yield from _other_budgets(dialect, rule)
    if rule.weight is not None:
        yield from _other_weights(dialect, rule, rule.weight)
    for count in range(1, len(rule.gates) + 1):
        for dropped in itertools.combinations(rule.gates, count):
            rest = [each for each in rule.gates if each not in dropped]
            if (rest or rule.weight) and settings_for(dialect, rule.but(gates=tuple(rest))):
                yield f"the same without {' and '.join(f'the {_gate(each)}' for each in dropped)}"


def _other_vetoes(dialect: Dialect, rule: Correction) -> Iterator[str]:
    for gate in rule.gates:
        for words, other in _vetoes(gate):
            if settings_for(dialect, rule.but(gates=tuple(other if each is gate else each for each in rule.gates))):
                yield f"{words} in place of the veto"


def _other_budgets(dialect: Dialect, rule: Correction) -> Iterator[str]:
    for gate in rule.gates:
        other = gate.but(strict=not gate.strict) if gate.agg == "budget" else gate
        if other != gate and settings_for(
            dialect, rule.but(gates=tuple(other if each is gate else each for each in rule.gates))
        ):
            yield f"the same with strict {'true' if other.strict else 'false'}"


def _other_weights(dialect: Dialect, rule: Correction, weight: Weight) -> Iterator[str]:
    """The weight unbounded, or of another level."""
    bare = Weight(level=weight.level, limit=weight.limit, scope=weight.scope)
    if bare != weight and settings_for(dialect, rule.but(weight=bare)):
        yield f"the same with {weight.level} weights that nothing bounds"
    limit = None if weight.limit is None else weight.limit.but(at="token")
    levels: tuple[Literal["token", "geometric", "sequence"], ...] = ("token", "geometric", "sequence")
    for level in levels:
        if level != weight.level and settings_for(dialect, rule.but(weight=weight.but(level=level, limit=limit))):
            yield f"the same with {level} weights"


def _vetoes(gate: Gate) -> Iterator[tuple[str, Gate]]:
    """A veto on any token's ratio as one that looks down only, or as a bound on the largest ℓ²/2, as wide as its wider side."""
    if gate.agg != "every" or gate.metric != "ratio":
        return
    if gate.lower is not None and gate.upper is not None:
        yield f"one on any r below {gate.lower:g} only", gate.but(upper=None)
    size = max(abs(math.log(bound)) for bound in (gate.lower, gate.upper) if bound)
    other = Gate(metric="k2", level="sequence", agg="max", upper=float(f"{size**2 / 2:.6g}"), action=gate.action)
    yield f"a {_gate(other)} up to {other.upper:g} (any r outside [{math.exp(-size):.4g}, {math.exp(size):.4g}])", other


def part_not_read(dialect: Dialect, part: str) -> str:
    """A framework whose settings for a part are not read."""
    return f"no {part} of {dialect.title}'s is read here, so none can be written"


def lost_fields(dialect: Dialect, part: str, hard: dict[str, tuple[Any, Any]], back: Fields) -> str:
    """The fields that would change, with what would become of them."""
    if part in hard:
        known = kinds(dialect, part)
        return f"it has no {hard[part][0]}, only {', '.join(known)}" if known else part_not_read(dialect, part)
    seen = {path: ends for path, ends in heads(hard).items() if path in back} or heads(hard)
    return ", ".join(f"{path} {in_words(want)} would become {in_words(there)}" for path, (want, there) in seen.items())


def refusal_by_part(dialect: Dialect, parts: list[str], lost: Mapping[str, Lost]) -> str:
    """Every part that is lost and how, then what can be said without it."""
    words = {part: text if isinstance(text, str) else text() for part, text in lost.items()}
    named = "; nor ".join(text if part == "correction" else f"the {part}: {text}" for part, text in words.items())
    rest = [part for part in parts if part not in lost]
    offer = f" Without it the {' and the '.join(rest)} can be said (--only {','.join(rest)})." if rest else ""
    return f"{dialect.title} cannot say {named}.{offer}"
