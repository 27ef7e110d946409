"""A correction worked by hand: plain arithmetic on one sequence, to show what a rule does to a token.

The sequence is the whole batch and one turn. Every pair of policies a rule looks at sees the same two probabilities.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trimtab.config.correction import BY_PREFIX, Correction, Gate, Limit, Weight
from trimtab.config.divergences import DIVERGENCES, plain_value

LENGTH = 1000
Sides = tuple[float | None, float | None]
"""The lower and the upper bound; None: open."""
Item = TypeVar("Item", bound=Hashable)
Result = TypeVar("Result")


@dataclass(frozen=True)
class Token:
    """A token's probability under the policy that sampled it and under the policy it is compared with."""

    behavior: float
    target: float

    @property
    def log_r(self) -> float:
        """The log-ratio; 0 exactly for equal probabilities."""
        return math.log(self.target / self.behavior)


@dataclass(frozen=True)
class GateOutcome:
    """What a gate found: its statistic for each token's unit, and whether each token gets by."""

    gate: Gate
    statistic: tuple[float, ...]
    passes: tuple[bool, ...]
    sides: tuple[Sides, ...]  # its bounds for each token, as they are written: ratios as ratios


@dataclass(frozen=True)
class Outcome:
    """What a rule did to each token of a sequence. Weights stand before normalisation."""

    findings: tuple[GateOutcome, ...]
    kept: tuple[bool, ...]
    weight: tuple[float, ...]


def outcome(rule: Correction, tokens: Sequence[Token], advantage: float = 1.0) -> Outcome:
    """The rule on one sequence whose tokens all have this advantage."""
    kept, alive = [True] * len(tokens), [True] * len(tokens)
    findings: list[GateOutcome] = []
    for gate in rule.gates:
        found = _finding(gate, tokens, kept if gate.scope == "kept" else [True] * len(tokens), advantage)
        findings.append(found)
        if gate.action == "reject":
            kept = [stays and passes for stays, passes in zip(kept, found.passes, strict=True)]
        elif gate.action == "zero":
            alive = [stays and passes for stays, passes in zip(alive, found.passes, strict=True)]
    weight = _weights(rule.weight, tokens, kept)
    for found in findings:
        if found.gate.action == "clamp":
            weight = [
                each if passes else _clamp(each, *sides)
                for each, passes, sides in zip(weight, found.passes, found.sides, strict=True)
            ]
    counted = [stays and lives for stays, lives in zip(kept, alive, strict=True)]
    return Outcome(
        tuple(findings),
        tuple(kept),
        tuple(each if counts else 0.0 for each, counts in zip(weight, counted, strict=True)),
    )


_GATHERED: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": lambda values: math.fsum(values) / len(values),
    "sum": math.fsum,
    "max": max,
    "min": min,
}


def _finding(gate: Gate, tokens: Sequence[Token], scope: Sequence[bool], advantage: float) -> GateOutcome:
    def value(token: Token) -> float:
        log_r = _limit(token.log_r, gate.limit, "token")
        return plain_value(gate.metric, gate.direction, log_r, token.target, token.behavior)

    values = _map(value, tokens)
    judged = [each for each, counts in zip(values, scope, strict=True) if counts]
    length = sum(scope)
    scales = _map(lambda token: scale_of(gate.bound_scale, token.behavior, length), tokens)
    statistic, inside, sides = _verdicts(gate, values, judged, scales)
    acts = _map(lambda token: _acts(gate, token, advantage), tokens)
    passes = tuple(fine or not act or not counts for fine, act, counts in zip(inside, acts, scope, strict=True))
    shown = _map(math.exp, statistic) if gate.metric == "ratio" else statistic
    return GateOutcome(gate, tuple(shown), passes, tuple(_map(lambda each: _as_written_sides(gate, each), sides)))


def _as_written_sides(gate: Gate, sides: Sides) -> Sides:
    if gate.bounds is None and gate.bound_scale == "none":
        return gate.lower, gate.upper
    low, high = (math.exp(each) if each is not None and gate.metric == "ratio" else each for each in sides)
    return low, high


def _map(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The function of each item, worked out once per distinct item: most tokens of an example are alike."""
    found = {item: function(item) for item in set(items)}
    return [found[item] for item in items]


def _verdicts(
    gate: Gate, values: list[float], judged: list[float], scales: list[float]
) -> tuple[list[float], list[bool], list[Sides]]:
    """The statistic behind each token, whether it lies inside, and its bounds; ratios in log space."""
    if gate.agg is None or not judged:
        sides = gate_sides(gate, judged, scales)
        return values, [_inside(each, *bounds) for each, bounds in zip(values, sides, strict=True)], sides
    if gate.agg == "budget":
        most = _budget(judged, gate.upper or 0.0, gate.strict)
        return values, [each <= most for each in values], [(None, gate.upper)] * len(values)
    if gate.agg == "every":
        judged = [_limit(each, gate.limit, "gathered") for each in judged]
        sides = gate_sides(gate, [max(judged, key=abs)], scales)
        outside = [each for each in set(judged) if not _inside(each, *sides[0])]
        return [max(outside or judged, key=abs)] * len(values), [not outside] * len(values), sides
    gathered = _limit(_GATHERED[gate.agg](judged), gate.limit, "gathered")
    sides = gate_sides(gate, [gathered], scales)
    return [gathered] * len(values), [_inside(gathered, *sides[0])] * len(values), sides


def _budget(values: Sequence[float], most: float, strict: bool) -> float:
    """The greatest value that stays when the largest go, equal ones together, until the mean of the rest fits."""
    for top in sorted(set(values), reverse=True):
        rest = [each for each in values if each <= top]
        total, room = math.fsum(rest), most * len(rest)
        if total < room or (total == room and not strict):
            return top
    return min(values) if strict else -math.inf


def _acts(gate: Gate, token: Token, advantage: float) -> bool:
    return {
        "always": True,
        "negative_advantage": advantage < 0,
        "nonpositive_advantage": advantage <= 0,
        "positive_advantage": advantage > 0,
        "moving_away": advantage * token.log_r > 0,
    }[gate.when]


def _weights(weight: Weight | None, tokens: Sequence[Token], kept: Sequence[bool]) -> list[float]:
    if weight is None or weight.level == "one":
        return [1.0] * len(tokens)
    scope = kept if weight.scope == "kept" else [True] * len(tokens)
    limited = _map(lambda token: _limit(token.log_r, weight.limit, "token"), tokens)
    log_rs = [each if counts else 0.0 for each, counts in zip(limited, scope, strict=True)]
    if weight.level in BY_PREFIX:
        log_rs = [_limit(each, weight.limit, "gathered") for each in _up_to_each(weight.level, log_rs, scope)]
    elif weight.level != "token":
        total = math.fsum(log_rs)
        gathered = total if weight.level in ("sequence", "segment_product") else total / max(sum(scope), 1)
        log_rs = [_limit(gathered, weight.limit, "gathered")] * len(tokens)
    if weight.bounds is None and weight.bound_scale == "none":
        return _map(lambda log_r: _weight_of(log_r, weight), log_rs)
    alone = weight.level == "token" or weight.level in BY_PREFIX
    units = [each for each, counts in zip(log_rs, scope, strict=True) if counts] if alone else log_rs[:1]
    scales = [scale_of(weight.bound_scale, token.behavior, sum(scope)) for token in tokens]
    sides = weight_sides(weight, units, scales)
    return [_within(log_r, weight, *each) for log_r, each in zip(log_rs, sides, strict=True)]


def _within(log_r: float, weight: Weight, low: float | None, high: float | None) -> float:
    """A weight within bounds given as logarithms."""
    if weight.outside == "zero" and not _inside(log_r, low, high):
        return 0.0
    return math.exp(min(_clamp(log_r, low, high), 700.0))


def _up_to_each(level: str, log_rs: Sequence[float], scope: Sequence[bool]) -> list[float]:
    """What each token weighs of those before it, in log space."""
    if level == "prefix":
        return list(itertools.accumulate(log_rs))
    found, least = list[float](), math.inf
    for log_r, counts in zip(log_rs, scope, strict=True):
        found.append(log_r + (least if least < math.inf else 0.0) if counts else 0.0)
        least = min(least, log_r) if counts else least
    return found


def _weight_of(log_r: float, weight: Weight) -> float:
    ratio = math.exp(min(log_r, 700.0))
    if weight.outside == "zero":
        low, high = (math.log(bound) if bound else None for bound in (weight.lower, weight.upper))
        return ratio if _inside(log_r, low, high) else 0.0
    return _clamp(ratio, weight.lower, weight.upper)


def _inside(value: float, lower: float | None, upper: float | None) -> bool:
    return (lower is None or value >= lower) and (upper is None or value <= upper)


def _clamp(value: float, lower: float | None, upper: float | None) -> float:
    value = value if lower is None else max(value, lower)
    return value if upper is None else min(value, upper)


def _limit(log_r: float, limit: Limit | None, at: str) -> float:
    return log_r if limit is None or limit.at != at else max(-limit.bound, min(limit.bound, log_r))


# ── bounds that are scaled, or found among the units of a batch; ratios in log space ───────────────────────────────────


def scale_of(scale: str, behavior: float, length: int) -> float:
    """What bounds are multiplied by, for a token of this probability in a unit of so many tokens.

    Of an example's distribution no more is known than this token: its entropy is taken as that of tokens all as likely as it.
    """
    return {
        "none": lambda: 1.0,
        "entropy": lambda: -math.log(behavior),
        "one_minus_p": lambda: 1.0 - behavior,
        "inv_sqrt_length": lambda: 1.0 / math.sqrt(max(length, 1)),
    }[scale]()


def gate_sides(gate: Gate, units: Sequence[float], scales: Sequence[float]) -> list[Sides]:
    """What the statistic has to lie within, for each scale; `units` are the statistics of the whole batch."""
    if gate.bounds is not None:
        facts = DIVERGENCES[gate.metric]
        if facts.least == facts.neutral:
            return [(None, nearest_distance(units, gate.bounds.keep or 1.0))] * len(scales)
        return [_both_sides(units, gate.bounds.keep or 1.0)] * len(scales)
    found = {scale: (_at_scale(gate, gate.lower, scale), _at_scale(gate, gate.upper, scale)) for scale in set(scales)}
    return [found[scale] for scale in scales]


def _at_scale(gate: Gate, bound: float | None, scale: float) -> float | None:
    if bound is None:
        return None
    if gate.metric == "mult_prob_error" and scale != 1.0:
        return bound**scale
    return scale * (math.log(bound) if gate.metric == "ratio" else bound)


def weight_sides(weight: Weight, units: Sequence[float], scales: Sequence[float]) -> list[Sides]:
    """The same for the logarithms of raw weights."""
    low, high = (math.log(bound) if bound else None for bound in (weight.lower, weight.upper))
    if weight.bounds is not None and weight.bounds.ess is not None:
        return [(low, even_bound(units, low, weight.bounds.ess))] * len(scales)
    if weight.bounds is not None:
        return [_both_sides(units, weight.bounds.keep or 1.0)] * len(scales)
    return [(None if low is None else scale * low, None if high is None else scale * high) for scale in scales]


def _both_sides(units: Sequence[float], keep: float) -> Sides:
    far = nearest_distance([abs(each) for each in units], keep)
    return -far, far


def nearest_distance(distances: Sequence[float], keep: float) -> float:
    """The least distance within which a share lies; rounded up, but for what floating point adds to a product."""
    ordered = sorted(distances)
    return ordered[max(math.ceil(keep * len(ordered) * (1 - 1e-12)), 1) - 1] if ordered else 0.0


def even_bound(units: Sequence[float], low: float | None, share: float) -> float:
    """The greatest bound on log w, 0 or more and none beyond the greatest, with (Σw)² >= share · n · Σw²; by halving."""

    def is_even(bound: float) -> bool:
        held = [math.exp(max(min(each, bound), -math.inf if low is None else low) - bound) for each in units]
        return math.fsum(held) ** 2 >= share * len(held) * math.fsum(each * each for each in held)

    least, most = 0.0, max([0.0, *units])
    if is_even(most):
        return most
    for _ in range(200):
        middle = (least + most) / 2
        least, most = (middle, most) if is_even(middle) else (least, middle)
    return least
