"""What is doubtful about the bounds of a correction or a loss, whichever framework they come from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.config.correction import Correction, Gate
from trimtab.config.losses import Gspo, Luspo, Objective
from trimtab.config.losses.clipped import OF_TOKENS, PAPER
from trimtab.dialects.equivalence import canonical
from trimtab.dialects.framework import Given, Key
from trimtab.dialects.parts import OFF
from trimtab.dialects.reading import Finding, Level
from trimtab.errors import ConfigError
from trimtab.explain.sensitivity import rarely_fires

TIGHT = 0.002
"""Bounds on a mean log-ratio below this are far tighter than most frameworks use: SkyRL's default is ±0.01."""


def bound_findings(asked: Given, rule: Correction | None) -> list[Finding]:
    """Bounds that cannot fire, hardly ever do, or nearly always do."""
    if rule is None or rule == OFF:
        return []
    found = _doubts(rule)
    return [Finding(_key_of(asked, text), level, text) for level, text in found]


def _doubts(rule: Correction) -> list[tuple[Level, str]]:
    plain = canonical(rule)
    values = [rule, *plain.gates, *([rule.weight] if rule.weight is not None else [])]
    notes = [_tight(gate) for gate in plain.gates if _is_tight(gate)]
    notes += [wide for gate in plain.gates if (wide := _wide(gate))]
    surprises: list[tuple[Level, str]] = [("surprise", doubt) for value in values for doubt in value.doubts()]
    return [*surprises, *(("note", text) for text in notes)]


def _key_of(asked: Given, text: str) -> str:
    """The last key without which the doubt would not be there: bounds stand behind what they bound. Else the first number."""
    own = [key for key in asked.dialect.keys if key.label in asked.values]
    for key in reversed(own):
        if key.part == "correction" and not _is_doubt(asked.without(key.label), text):
            return key.path
    numbers = [key for key in own if key.part == "correction" and isinstance(asked.values[key.label], int | float)]
    return next((key.path for key in (*numbers, *own)), asked.dialect.keys[0].path)


def _is_doubt(asked: Given, text: str) -> bool:
    try:
        rule = asked.dialect.correction_of(asked)
    except (ConfigError, TypeError, ValueError):
        return False
    return rule is not None and text in [doubt for _, doubt in _doubts(rule)]


def _wide(gate: Gate) -> str | None:
    """What `rarely_fires` says, save of a geometric mean, which speaks for itself."""
    return None if gate.metric == "ratio" and gate.agg == "mean" else rarely_fires(gate)


def _is_tight(gate: Gate) -> bool:
    if gate.metric != "ratio" or gate.agg != "mean" or gate.when != "always":
        return False
    bounds = [abs(math.log(bound)) for bound in (gate.lower, gate.upper) if bound is not None]
    return min(bounds, default=1.0) < TIGHT


def _tight(gate: Gate) -> str:
    sides = " to ".join("open" if bound is None else f"{bound:.6g}" for bound in (gate.lower, gate.upper))
    return (
        f"A geometric mean ratio within {sides} rejects most sequences as soon as two engines round differently; others use "
        "0.99 to 1.01. Watch the rejected fraction."
    )


def clip_findings(asked: Given) -> Iterator[Finding]:
    """A clip meant for the ratios of tokens on the mean ratio of a sequence, with the paper's bounds in the framework's keys."""
    loss = _loss_under(asked, {})
    if not isinstance(loss, Gspo | Luspo) or min(loss.low, loss.high) < OF_TOKENS:
        return
    settings = _sequence_clip(asked)
    remedy = " and ".join(f"{asked.place(label)} to {_plain(value)}" for label, value in settings.items())
    key = next(iter(settings), next(each.label for each in asked.dialect.keys if each.part == "loss"))
    text = (
        f"{type(loss).__name__.upper()} clips the geometric mean of the ratios of a sequence, which moves far less than one of them: with "
        f"low {loss.low:g} and high {loss.high:g} it hardly ever clips. The paper has {PAPER[0]:g} and {PAPER[1]:g}"
    )
    yield Finding(asked.place(key), "risk", f"{text}: set {remedy}." if settings else f"{text}.")


def _plain(value: Any) -> str:
    return " ".join(map(_plain, value)) if isinstance(value, list) else f"{value:.10g}"


def _sequence_clip(asked: Given) -> dict[str, Any]:
    """The framework's keys that set both sides of the clip to the paper's: each side one, one for both, or one for either."""
    low, high = PAPER
    labels = [key.label for key in asked.dialect.keys if key.part == "loss" and _is_bound(asked, key)]
    first: dict[str, Any] = {}
    for label in labels:
        for value in ([low, high], low, 1 - low):
            sides = _clip_under(asked, {label: value})
            if _is_near(sides, PAPER):
                return {label: value}
            if _is_near(sides[:1], PAPER[:1]):
                first = first or {label: value}
    for label in labels if first else ():
        for value in (high, 1 + high):
            found = {**first, label: value}
            if label not in first and _is_near(_clip_under(asked, found), PAPER):
                return found
    return first


def _is_bound(asked: Given, key: Key) -> bool:
    """Whether a key holds a number, two of them, or nothing yet."""
    value = asked.values.get(key.label, asked.default(key))
    return value is None or (isinstance(value, int | float | list) and not isinstance(value, bool))


def _clip_under(asked: Given, values: Mapping[str, Any]) -> tuple[float, ...]:
    loss = _loss_under(asked, values)
    return (loss.low, loss.high) if isinstance(loss, Gspo | Luspo) else ()


def _loss_under(asked: Given, values: Mapping[str, Any]) -> Objective | None:
    """The loss with other values; None where there is none that can be read."""
    try:
        return asked.dialect.loss_of(asked.having(values)).loss if asked.dialect.loss_of else None
    except (ConfigError, TypeError, ValueError, AttributeError, LookupError):
        return None


def _is_near(sides: tuple[float, ...], wanted: tuple[float, ...]) -> bool:
    return len(sides) == len(wanted) and all(
        math.isclose(side, each, rel_tol=1e-6) for side, each in zip(sides, wanted, strict=True)
    )
