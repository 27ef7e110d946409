"""The bounds of a correction worked by hand: scaled for each token, or found among the units of a batch. Ratios in log space."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trimtab.config.algebra import Gate, Weight
from trimtab.config.metrics import METRICS

Sides = tuple[float | None, float | None]


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
        facts = METRICS[gate.metric]
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
