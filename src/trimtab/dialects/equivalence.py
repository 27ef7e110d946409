"""When two corrections compute the same thing though they are written differently, and readings said in other words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from trimtab.config.advantages import Grpo, Shaping
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import Clip, ImportancePg
from trimtab.dialects.parts import OPEN
from trimtab.dialects.reading import Reading

_MIRRORED = {"max": "min", "min": "max"}
_LEVELS = {"token": "token", "mean": "geometric", "sum": "sequence"}


Work = TypeVar("Work", bound=Callable[..., Any])


def remember(work: Work) -> Work:
    """A function of settings that keeps its latest answers: a search asks the same few questions thousands of times."""
    return cast("Work", lru_cache(maxsize=4096)(work))


@dataclass(frozen=True)
class Agreement:
    """How far two corrections agree."""

    weights: bool
    """What multiplies each token's loss, up to safety limits."""
    kept: bool
    """Which tokens leave the mask, rather than stay in it with weight 0."""
    limits: bool
    """Safety limits on log_r, where they can matter: not beyond a ratio that no policy meets, nor beyond a bound that holds anyway."""
    denominator: bool
    """What a loss is divided by."""
    applies_to: bool
    """What the weight multiplies."""


def agreement(one: Correction, other: Correction) -> Agreement:
    """How far two corrections agree once each is brought to its canonical form."""
    a, b = canonical(one), canonical(other)
    kept = _without_limits(a) == _without_limits(b)
    return Agreement(
        weights=kept or _without_limits(zeroing(a)) == _without_limits(zeroing(b)),
        kept=kept,
        limits=_acting_limits(a) == _acting_limits(b) or _acting_limits(zeroing(a)) == _acting_limits(zeroing(b)),
        denominator=a.denominator == b.denominator,
        applies_to=a.applies_to == b.applies_to,
    )


def is_same(one: Correction, other: Correction) -> bool:
    """Whether two corrections give the same weights, masks and losses on every batch."""
    return canonical(one) == canonical(other)


@remember
def canonical(rule: Correction) -> Correction:
    """The form all equal corrections share: ratios for k1, no idle scopes, gates in a fixed order, nothing said twice."""
    gates = [_plain_gate(gate, rule) for gate in rule.gates]
    gates = [
        gate for gate in gates if gate.action == "observe" or gate.bounds or (gate.lower, gate.upper) != (None, None)
    ]
    gates = _drop_idle_scopes(gates)
    weight = None if rule.weight is None or rule.weight.level == "one" else _plain_weight(rule.weight, gates)
    gates, weight = _fold(gates, weight, rule.pair)
    if all(gate.scope == "trained" for gate in gates):
        gates = sorted(dict.fromkeys(gates), key=repr)
    return Correction(
        policies=rule.policies,
        gates=tuple(gates),
        weight=weight or Weight(level="one"),
        normalize=rule.normalize,
        denominator=rule.denominator if any(gate.action == "reject" for gate in gates) else "trained",
        applies_to=rule.applies_to if weight is not None else "policy",
        centering=rule.centering,
    )


def zeroing(rule: Correction) -> Correction:
    """The same weights with nothing rejected; itself where what was rejected matters to a later stage or the denominator."""
    staged = any(gate.scope == "kept" for gate in rule.gates) or (
        rule.weight is not None and rule.weight.scope == "kept"
    )
    if staged or rule.denominator == "kept":
        return rule
    return canonical(rule.but(gates=tuple(_acting(gate, "reject", "zero") for gate in rule.gates)))


def rejecting(rule: Correction) -> Correction:
    """The same weights with everything zeroed taken out of the mask."""
    unfolded = as_gate(rule) or rule
    return unfolded.but(gates=tuple(_acting(gate, "zero", "reject") for gate in unfolded.gates))


def _acting(gate: Gate, before: str, after: str) -> Gate:
    return _but(gate, {"action": after}) if gate.action == before else gate


def as_gate(rule: Correction) -> Correction | None:
    """The same with a zeroing weight written as a zeroing gate and an open weight."""
    weight = rule.weight
    if weight is None or weight.outside != "zero" or weight.level not in _LEVELS.values() or rule.normalize:
        return None
    if weight.bounds is not None or weight.bound_scale != "none":
        return None
    agg = {level: agg for agg, level in _LEVELS.items()}[weight.level]
    shape: dict[str, Any] = {"level": "token"} if agg == "token" else {"level": "sequence", "agg": agg}
    gate = Gate(
        metric="ratio", **shape, lower=weight.lower or None, upper=weight.upper, action="zero", limit=weight.limit
    )
    return rule.but(
        gates=(*rule.gates, gate), weight=Weight(level=weight.level, limit=weight.limit, scope=weight.scope)
    )


def _plain_gate(gate: Gate, rule: Correction) -> Gate:
    found = _as_ratio(gate)
    changes: dict[str, Any] = {} if found.metric == "age" else {"pair": found.pair or rule.pair}
    if found.metric == "ratio":
        changes |= {"lower": _round(found.lower), "upper": _round(found.upper)}
    if found.when in ("always", "moving_away") or found.level == "token":
        changes["advantage_of"] = "unit"
    return _but(found, changes)


def _as_ratio(gate: Gate) -> Gate:
    """k1 is a log-ratio with a sign: the same test on the ratio, its bounds exponentiated and, forward, turned over."""
    if gate.metric != "k1" or gate.when != "always":
        return gate
    low, high = (None if bound is None else math.exp(bound) for bound in (gate.lower, gate.upper))
    agg = gate.agg
    if gate.direction == "forward":
        low, high = (None if bound is None else 1 / bound for bound in (high, low))
        agg = _MIRRORED.get(agg or "", agg)
    if agg not in ("max", "min") and not (low or 1) <= 1 <= (high or 1):
        return gate  # it rejects on-policy data, which a gate on the ratio cannot say
    return _but(gate, {"metric": "ratio", "direction": None, "lower": low, "upper": high, "agg": agg})


def _round(bound: float | None) -> float | None:
    """Twelve digits, so that a logarithm and its exponential agree; an absurd bound is none."""
    if bound is None or bound >= OPEN or bound <= 1 / OPEN:
        return None
    return float(f"{bound:.12g}")


def _drop_idle_scopes(gates: list[Gate]) -> list[Gate]:
    """`kept` where it is the same as `trained`: every earlier gate left whole sequences."""
    found: list[Gate] = []
    for gate in gates:
        idle = gate.scope == "kept" and gate.agg != "budget" and _leave_whole(found)
        found.append(_but(gate, {"scope": "trained"}) if idle else gate)
    return found


def leaves_whole(rule: Correction) -> bool:
    """Whether what a correction turns away is whole sequences."""
    return _leave_whole([*canonical(rule).gates])


def _leave_whole(gates: list[Gate]) -> bool:
    return all(gate.action != "reject" or (gate.level == "sequence" and _by_sequence(gate)) for gate in gates)


def _by_sequence(gate: Gate) -> bool:
    return gate.when == "always" or (gate.advantage_of == "unit" and gate.when != "moving_away")


def _plain_weight(weight: Weight, gates: list[Gate]) -> Weight:
    changes: dict[str, Any] = {
        "lower": _round(weight.lower) if weight.lower else None,
        "upper": _round(weight.upper),
    }
    if (changes["lower"], changes["upper"], weight.bounds) == (None, None, None):
        changes |= {"outside": "clamp", "bound_scale": "none"}
    if weight.level == "token" or _leave_whole(gates):
        changes["scope"] = "trained"
    return weight.but(**changes)


def _fold(gates: list[Gate], weight: Weight | None, pair: str) -> tuple[list[Gate], Weight | None]:
    """A zeroing gate on the very ratio that weighs is a weight that is zero outside."""
    if weight is None or (weight.lower, weight.upper, weight.bounds) != (None, None, None):
        return gates, weight
    for gate in gates:
        same_unit = gate.metric == "ratio" and _LEVELS.get(gate.agg or gate.level) == weight.level
        plain = gate.action == "zero" and gate.when == "always" and gate.scope == weight.scope and not gate.bounds
        plain = plain and gate.bound_scale == "none"
        if same_unit and plain and gate.limit == weight.limit and gate.pair == pair:
            rest = [other for other in gates if other is not gate]
            return rest, weight.but(lower=gate.lower, upper=gate.upper, outside="zero")
    return gates, weight


FAR = 20.0
"""A log-ratio of one token that no two policies have: a ratio of 5e8."""


def _acting_limits(rule: Correction) -> Correction:
    """Without the limits that cannot matter; what a weight is counted by is none of their business."""
    return _with_limits(rule, _can_matter)


def _can_matter(value: Gate | Weight) -> bool:
    """Whether a limit changes anything: it lies near for a token, or within the bounds of what is gathered."""
    if value.limit is None or (value.limit.at == "token" and value.limit.bound >= FAR):
        return False
    if value.limit.at == "token":
        return True
    ends = [abs(math.log(bound)) for bound in (value.lower, value.upper) if bound]
    bounded = value.upper is not None and (isinstance(value, Weight) or value.metric == "ratio")
    return not (bounded and max(ends) < value.limit.bound)


def nearest_limit(*rules: Correction) -> float:
    """The smallest of the limits on a log-ratio that these have."""
    held = [part.limit for rule in rules for part in (*rule.gates, rule.weight) if part is not None]
    return min((each.bound for each in held if each is not None), default=math.inf)


def _without_limits(rule: Correction) -> Correction:
    return _with_limits(rule, lambda _: False)


def _with_limits(rule: Correction, wanted: Callable[[Gate | Weight], bool]) -> Correction:
    gates = [gate if wanted(gate) else _but(gate, {"limit": None}) for gate in rule.gates]
    weight = rule.weight
    if weight is not None and weight.limit is not None and not wanted(weight):
        weight = weight.but(limit=None)
    rule = rule.but(gates=tuple(gates), weight=weight, denominator="trained", applies_to="policy")
    return canonical(rule)


def _but(gate: Gate, changes: dict[str, Any]) -> Gate:
    """A copy with some fields changed; not validated again, since an intermediate form may look odd."""
    return gate.model_copy(update=changes)


# ── the same in other words ───────────────────────────────────────────────────────────────────────────────────────────


def with_idle_clip(reading: Reading) -> Reading:
    """The plain policy gradient through ρ as a clip that never acts, which most frameworks have alone: max(−Aρ, −A·clip(ρ, 0, ∞))."""
    if not isinstance(reading.loss, ImportancePg):
        return reading
    return replace(reading, loss=Clip(low=1.0, high=OPEN, log_limit=reading.loss.log_limit))


def with_plain_rewards(reading: Reading) -> Reading:
    """The same advantages from rewards as they come, bounded where the scaled ones were.

    (s·(R + b) − s·(μ + b)) / (s·σ + eps) = (R − μ) / (σ + eps/s): with s 10 and eps 1e-5 GRPO's eps is 1e-6. A clip of s·(R + b) at
    ±c is one of R at ±c/s − b.
    """
    estimator = reading.advantage
    if not isinstance(estimator, Grpo) or len(reading.shaping) != 1:
        return reading
    step = reading.shaping[0]
    if not estimator.std or step.scale <= 0 or step.normalise is not None or (step.bias, step.scale) == (0, 1):
        return reading
    lower, upper = (None if bound is None else bound / step.scale - step.bias for bound in (step.lower, step.upper))
    rest = step.but(bias=0.0, scale=1.0, lower=lower, upper=upper)
    return replace(
        reading,
        advantage=estimator.but(eps=float(f"{estimator.eps / step.scale:.12g}")),
        shaping=() if rest == Shaping() else (rest,),
    )
