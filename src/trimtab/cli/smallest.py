"""A smallest batch on which two corrections differ."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction
from trimtab.explain.gate_words import as_written

MOST = 4000
"""Batches tried before giving up."""


def smallest_difference(
    one: Correction, other: Correction, most: int = MOST
) -> list[tuple[str, str, str, str, str]] | None:
    """The tokens of a smallest batch on which two corrections differ; None where none was found."""
    import torch

    from trimtab.core.correct import correct

    for log_r, advantage in itertools.islice(_batches(one, other), most):
        behavior = torch.full((1, len(log_r)), -math.log(2), dtype=torch.float64)
        target = behavior + torch.tensor([log_r], dtype=torch.float64)
        a, b = (
            correct(
                rule,
                behavior=behavior,
                proximal=target,
                current=target,
                mask=torch.ones(1, len(log_r), dtype=torch.bool),
                advantages=torch.tensor([advantage], dtype=torch.float64),
                entropy=-behavior,
                group=torch.zeros(1, dtype=torch.int64),
                age=torch.zeros_like(behavior),
            )
            for rule in (one, other)
        )
        if not (torch.equal(a.kept, b.kept) and torch.allclose(a.weight, b.weight, rtol=1e-6, atol=1e-9)):
            return [
                (
                    str(place + 1),
                    as_written(round(math.exp(value), 6)),
                    as_written(advantage),
                    _outcome(a, place),
                    _outcome(b, place),
                )
                for place, value in enumerate(log_r)
            ]
    return None


def _batches(one: Correction, other: Correction) -> Iterator[tuple[tuple[float, ...], float]]:
    """Log-ratios of one sequence and its advantage, short sequences first."""
    signs = (1.0, -1.0) if one.needs_advantages or other.needs_advantages else (1.0,)
    for length in (1, 2, 3, 4):
        yield from itertools.product(itertools.product(_telling_ratios(one, other), repeat=length), signs)


def _outcome(found: Any, place: int) -> str:
    weight, kept = found.weight[0, place].tolist(), found.kept[0, place].tolist()
    return f"weighs {as_written(round(weight, 6))}" if kept else "rejected"


def _telling_ratios(one: Correction, other: Correction) -> list[float]:
    """Log-ratios worth trying: 0, and a little inside and outside every bound on either side of 1."""
    found = {0.0, math.log(3), -math.log(3)}
    for bound in (*_bounds(one), *_bounds(other)):
        # 0.9 and 1.15: no mean or sum of up to four such lies on a bound, where rounding would decide
        found |= {sign * size * factor for size in _sizes(bound) for sign in (1, -1) for factor in (0.9, 1.15)}
    ordered = sorted(found, key=abs)
    return [value for value in ordered if abs(value) < 15][:24]


def _bounds(rule: Correction) -> list[float]:
    """Every bound of its gates and weight but 0, which no log-ratio is near to."""
    every = [bound for gate in rule.gates for bound in (gate.lower, gate.upper)]
    every += [] if rule.weight is None else [rule.weight.lower, rule.weight.upper]
    return [bound for bound in every if bound]


def _sizes(bound: float) -> tuple[float, float]:
    """|ℓ| at which a bound would act: on a ratio |log 2| = 0.69, on ℓ²/2 (about k2 and k3) √(2 · 0.02) = 0.2."""
    size = min(abs(math.log(bound)) if bound > 0 else abs(bound), 15.0)
    return size, math.sqrt(2 * abs(bound)) if abs(bound) < 50 else size
