"""What becomes of a token as its ratio changes: where a preset rejects it, sets it to 0 or holds its weight. Plain arithmetic.

Numbers come from trimtab.explain.arithmetic; docs/theory.py tells and draws them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Generic, Literal, TypeVar

from trimtab.config.correction import Correction, Weight
from trimtab.config.presets import PRESETS
from trimtab.explain.arithmetic import Token, outcome

LENGTH = 50
STEPS = 80
Kind = Literal["kept", "held", "zero", "rejected"]
K = TypeVar("K")
WORDS: dict[Kind, str] = {"held": "held at a bound", "zero": "weight 0", "rejected": "rejected"}


@dataclass(frozen=True)
class Sight:
    """A way to look at a rule: a sequence of `LENGTH` tokens for each ratio, and how far ratios go."""

    title: str
    sequence: Callable[[float], tuple[Token, ...]]
    reaches: tuple[float, ...]
    """Greatest ratios to look at, the least that shows something is taken; the axis goes from one over it to it."""


def _token(ratio: float, usual: float) -> Token:
    """A token of that ratio, at the usual probability or at what leaves the other policy at most 0.9."""
    behavior = min(usual, 0.9 / ratio)
    return Token(behavior, behavior * ratio)


ALONE = Sight(
    f"One token of {LENGTH}, the others at ratio 1",
    lambda ratio: (*(Token(0.5, 0.5),) * (LENGTH - 1), _token(ratio, 0.1)),
    (8.0, 1e5),
)
ALIKE = Sight(f"All {LENGTH} tokens alike", lambda ratio: (_token(ratio, 0.5),) * LENGTH, (1.02, 1.25, 8.0, 1e5))
SIGHTS = (ALONE, ALIKE)


@dataclass(frozen=True)
class Fate:
    """What a rule did to the last token, and what it would weigh without gates and bounds."""

    kind: Kind
    weight: float
    raw: float


@dataclass(frozen=True)
class Stretch(Generic[K]):
    """Neighbouring ratios of one kind; its edges are those of the rule to ten digits, or of the axis."""

    kind: K
    ratios: tuple[float, ...]


def unbounded(rule: Correction) -> Correction:
    """The same weight where no gate and no bound acts."""
    weight = Weight(level="one") if rule.weight is None else rule.weight.but(lower=None, upper=None, outside="clamp")
    return rule.but(gates=(), weight=weight, denominator="trained", centering=None)


@cache
def fate(name: str, sight: Sight, ratio: float, advantage: float) -> Fate:
    """The fate of a token under a preset."""
    rule, tokens = PRESETS[name](), sight.sequence(ratio)
    found, raw = outcome(rule, tokens, advantage), outcome(unbounded(rule), tokens, advantage).weight[-1]
    weight = found.weight[-1]
    if not found.kept[-1]:
        return Fate("rejected", 0.0, raw)
    if weight == 0 and raw != 0:
        return Fate("zero", 0.0, raw)
    return Fate("kept" if math.isclose(weight, raw, rel_tol=1e-9) else "held", weight, raw)


def grid(*reaches: float) -> list[float]:
    """Ratios from one over each reach to it, finer around 1 where several are given."""
    return sorted({reach ** (2 * step / STEPS - 1) for reach in reaches for step in range(STEPS + 1)})


def stretches(name: str, sight: Sight, ratios: Sequence[float], advantage: float) -> list[Stretch[Kind]]:
    """The axis cut where the fate of a token under a preset changes."""
    return cut_where(lambda ratio: fate(name, sight, ratio, advantage).kind, ratios)


def cut_where(kind: Callable[[float], K], ratios: Sequence[float]) -> list[Stretch[K]]:
    """An axis of ratios cut where their kind changes."""
    found, here = list[Stretch[K]](), [ratios[0]]
    for before, after in pairwise(ratios):
        if kind(before) != kind(after):
            left, right = _edge(kind, before, after)
            found.append(Stretch(kind(left), (*here, left)))
            here = [right]
        here.append(after)
    return [*found, Stretch(kind(here[-1]), tuple(here))]


def _edge(kind: Callable[[float], K], left: float, right: float) -> tuple[float, float]:
    of_left = kind(left)
    for _ in range(34):
        middle = math.sqrt(left * right)
        left, right = (middle, right) if kind(middle) == of_left else (left, middle)
    return left, right


def signs(name: str) -> tuple[float, ...]:
    """The advantages that matter to a preset: one where it does not look at them."""
    return (1.0, -1.0) if PRESETS[name]().needs_advantages else (1.0,)


def acts(name: str, sight: Sight, reach: float, advantage: float) -> bool:
    """Whether something happens within these ratios."""
    return any(fate(name, sight, ratio, advantage).kind != "kept" for ratio in grid(reach))


def reach_of(name: str, sight: Sight, advantages: Iterable[float]) -> float | None:
    """How far to look until something happens; None where nothing ever does."""
    signs_ = list(advantages)
    return next((reach for reach in sight.reaches if any(acts(name, sight, reach, sign) for sign in signs_)), None)


def told(name: str, sight: Sight, advantage: float) -> str:
    """Where the rule acts, in words: `rejected below 0.99 and above 1.01`."""
    cut = stretches(name, sight, grid(*sight.reaches), advantage)
    if all(each.kind == "kept" for each in cut):
        return f"nothing happens up to a factor of {sight.reaches[-1]:,.0f}"
    places: dict[Kind, list[str]] = {}
    for place, each in enumerate(cut):
        if each.kind != "kept":
            low = None if place == 0 else cut[place - 1].ratios[-1]
            high = None if place == len(cut) - 1 else each.ratios[-1]
            places.setdefault(each.kind, []).append(_between(low, high))
    return "; ".join(f"{WORDS[kind]} {' and '.join(where)}" for kind, where in places.items())


def _between(low: float | None, high: float | None) -> str:
    if low is None:
        return "everywhere" if high is None else f"below {high:.4g}"
    return f"above {low:.4g}" if high is None else f"from {low:.4g} to {high:.4g}"
