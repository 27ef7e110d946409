"""Bounds in words: numbers, numbers that are scaled, and those that are found in the batch."""

from __future__ import annotations

from trimtab.config.algebra import BY_SEGMENT, Correction, Gate, Weight
from trimtab.config.metrics import METRICS

Text = str | float | None


def as_written(value: float) -> str:
    """A number as its user wrote it: 1, 0.99, 1e-05."""
    text = f"{value:.12g}"
    return f"−{text[1:]}" if text.startswith("-") else text


def inequality(value: str, lower: Text, upper: Text, *, strict: bool = False) -> str:
    """A value with its bounds, closed unless strict, as an inequality."""
    low, high = (as_written(bound) if isinstance(bound, int | float) else bound for bound in (lower, upper))
    if low is None and high is None:
        return f"{value}, no bounds"
    left = "" if low is None else f"{low} ≤ "
    right = "" if high is None else f" {'<' if strict else '≤'} {high}"
    return f"{value} ≥ {low}" if high is None else f"{left}{value}{right}"


_FACTORS = {"entropy": ("H", "·H"), "one_minus_p": ("(1−q)", "·(1−q)"), "inv_sqrt_length": ("(1/√T)", "/√T")}
"""A scale as an exponent, and as a factor."""


def side_texts(part: Gate | Weight) -> tuple[str | None, str | None]:
    """The lower and the upper bound as they stand in a formula; None: open."""
    if part.bounds is not None:
        return _found_texts(part)
    return _with_scale(part.lower, part), _with_scale(part.upper, part)


def _found_texts(part: Gate | Weight) -> tuple[str | None, str | None]:
    if part.bounds is not None and part.bounds.ess is not None:
        return None if part.lower is None else as_written(part.lower), "u"
    if isinstance(part, Weight) or part.metric == "ratio":
        return "1/d", "d"
    facts = METRICS[part.metric]
    return (None if facts.least == facts.neutral else "−d"), "d"


def _with_scale(bound: float | None, part: Gate | Weight) -> str | None:
    if bound is None:
        return None
    text = as_written(bound)
    if part.bound_scale == "none":
        return text
    power, factor = _FACTORS[part.bound_scale]
    of_factor = isinstance(part, Weight) or part.metric in ("ratio", "mult_prob_error")
    return f"{text}^{power}" if of_factor else f"{text}{factor}"


def bounds_lines(part: Gate | Weight, unit: str) -> list[tuple[str, str]]:
    """What scaled bounds and those of the batch stand for; nothing for numbers. `unit`: what is judged or weighed, in the plural."""
    if part.bounds is not None and part.bounds.ess is not None:
        target = as_written(part.bounds.ess)
        return [
            (
                "bounds",
                f"u is the greatest bound, 1 or more, with (Σw)² / (n·Σw²) ≥ {target} over the n {unit} of the whole batch, across "
                "ranks; 1 where none has it",
            )
        ]
    if part.bounds is not None:
        share = as_written(100 * (part.bounds.keep or 1.0))
        return [
            (
                "bounds",
                f"d is the least distance within which {share} % of the {unit} of the whole batch lie, across ranks; what lies exactly "
                "as far stays too",
            )
        ]
    return [("scaled", _SCALED[part.bound_scale])] if part.bound_scale != "none" else []


_SCALED = {
    "entropy": "H is the entropy of the token's distribution: the surer the policy, the closer the bounds",
    "one_minus_p": "q is the token's probability under behavior: the likelier the token, the closer the bounds",
    "inv_sqrt_length": "T is the number of tokens behind the mean, whose spread under noise falls as 1/√T",
}


def unit_of(part: Gate | Weight) -> str:
    """What it judges or weighs, in the plural."""
    if part.level == "segment" or part.level in BY_SEGMENT:
        return "turns"
    return "sequences" if part.level in ("sequence", "geometric") else "tokens"


def varying_bounds(rule: Correction) -> str | None:
    """The first of its bounds that are no constants, in words; None where all are."""
    for part in (*rule.gates, rule.weight):
        if part is not None and part.bounds is not None:
            return f"bounds that are found in the batch ({'keep' if part.bounds.ess is None else 'ess'})"
        if part is not None and part.bound_scale != "none":
            return f"bounds that are scaled (bound_scale {part.bound_scale})"
    return None
