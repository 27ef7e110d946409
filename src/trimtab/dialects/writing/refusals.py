"""What a framework cannot say, named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.fields import Fields, heads
from trimtab.dialects.framework import Dialect
from trimtab.dialects.reading import Offer, Omission, PartName
from trimtab.dialects.writing.governing import governing
from trimtab.dialects.writing.inverse import kinds
from trimtab.dialects.writing.nearest import gate_words
from trimtab.dialects.writing.proposals import settings_for
from trimtab.dialects.writing.words import amount, thing
from trimtab.explain.gate_words import UNITS, metric_name, varying_bounds

OF_OTHERS = ("unbiased", "std_over", "eps", "eps_at", "about", "scope", "advantage")
"""Fields that only say how another is done: a division by a deviation, a ratio of a sequence."""


def obstacle(dialect: Dialect, rule: Correction) -> str:
    """The first piece of a correction that cannot be said by itself, else the combination."""
    varying = varying_bounds(rule)
    if varying is not None:
        return varying
    if rule.centering is not None and settings_for(dialect, rule.but(centering=None)):
        return f"centering {rule.centering}"
    for gate in rule.gates:
        if gate.action == "clamp":
            continue
        alone = Correction(policies=rule.policies, gates=(gate,))
        if any(settings_for(dialect, alone.but(weight=weight)) for weight in (None, rule.weight)):
            continue
        named = f"a {gate_words(gate)} with action {gate.action}"
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


def lost_kind(dialect: Dialect, part: PartName, wanted: str) -> Omission:
    """A loss or an estimator that is not there, or not beside the rest."""
    known = kinds(dialect, part)
    if not known:
        return Omission(part, "", f"no {part} of {dialect.title}'s is read here, so none can be written")
    if wanted in known:
        return Omission(part, "", f"{dialect.title} has {wanted}, but not beside the rest of these settings")
    return Omission(part, "", f"{dialect.title} has no {wanted}, only {', '.join(known)}")


def lost_fields(
    dialect: Dialect,
    part: PartName,
    settings: dict[str, Any],
    hard: Mapping[str, tuple[Any, Any]],
    goal: Fields,
    back: Fields,
) -> list[Omission]:
    """Each field that comes out otherwise: under which key, and what it becomes. One that idles there says nothing of its own."""
    seen = [path for path in heads(hard) if path in back or not _idles(path, back)] or [*heads(hard)]
    found: dict[str, Omission] = {}
    for path in seen:
        key, moves = governing(dialect, part, settings, path)
        there, wanted = amount(back, path), amount(goal, path)
        if moves:
            text = f"{thing(path)} becomes {there}, was {wanted}"
        elif goal.get(path) in (None, False):
            text = f"{dialect.title} has no key against {thing(path)} ({there})"
        elif back.get(path) in (None, False):
            text = f"{dialect.title} has no key for {thing(path)} ({wanted})"
        else:
            text = f"{dialect.title} has no key for {thing(path)}: {there}, was {wanted}"
        found.setdefault(text, Omission(part, key if moves else "", text, whole=False))
    return list(found.values())


def _idles(path: str, back: Fields) -> bool:
    """Whether a field that the target's form does not have is about something that is not there at all, which is listed for itself."""
    parent, _, name = path.rpartition(".")
    return back.get(parent) is not None and name in OF_OTHERS


def refusal_by_part(dialect: Dialect, lost: Sequence[Omission], rest: Sequence[str]) -> str:
    """Everything that is lost, part by part, what is near it, and what can be said without it."""
    clauses: dict[str, list[str]] = {}
    for each in lost:
        clauses.setdefault(each.part, []).append(_clause(dialect, each))
    named = "; nor ".join(
        " and ".join(texts) if part == "correction" else f"the {part}: {', '.join(texts)}"
        for part, texts in clauses.items()
    )
    near = [offer_words(offer) for each in lost for offer in each.offers[:1]]
    offered = f" --nearest writes {near[0]}." if near else ""
    without = f" Without it the {' and the '.join(rest)} can be said (--only {','.join(rest)})." if rest else ""
    return f"{dialect.title} cannot say {named}.{offered}{without}"


def _clause(dialect: Dialect, lost: Omission) -> str:
    """What is lost, in a sentence whose subject is the framework."""
    own = lost.text.removeprefix(f"{dialect.title} has ")
    text = lost.text if own == lost.text else f"it has {own}"
    return f"{text} ({lost.key})" if lost.key else text


def offer_words(offer: Offer) -> str:
    """An offer in the framework's keys, and what it is in words."""
    keys = ", ".join(f"{name} {_value(value)}" for name, value in _leaves(offer.settings))
    return f"{keys or 'nothing'} ({offer.words})"


def _leaves(settings: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        found += _leaves(value) if isinstance(value, Mapping) and value else [(name, value)]  # pyright: ignore[reportUnknownArgumentType]
    return found


def _value(value: Any) -> str:
    return "null" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
