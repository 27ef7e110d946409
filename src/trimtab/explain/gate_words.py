"""A gate in words and formulas: what it tests, its bounds, what happens outside, when it acts.

Bounds are numbers, numbers that are scaled, or found in the batch; those of a weight are written the same way.
"""

from __future__ import annotations

from trimtab.config.correction import BY_SEGMENT, Correction, Gate, Limit, Weight
from trimtab.config.divergences import DIVERGENCES, HEAD_METRICS

PROBABILITY_METRICS = tuple(name for name, each in DIVERGENCES.items() if each.of == "probabilities")
UNITS = {"token": "each token", "segment": "each turn", "sequence": "each sequence", "batch": "the batch"}
_UNIT = {"token": "the token", "segment": "the turn", "sequence": "the sequence", "batch": "the token"}
_RATIO_AGGS = {
    "mean": ("e^(mean ℓ)", "the geometric mean of the ratios"),
    "sum": ("e^(Σ ℓ)", "the product of the ratios"),
    "max": ("max r", "the largest ratio"),
    "min": ("min r", "the smallest ratio"),
    "every": ("every r", "every ratio"),
}
_AGGS = {
    "mean": ("mean({})", "the mean of {}"),
    "sum": ("Σ({})", "the sum of {}"),
    "max": ("max({})", "the largest value of {}"),
    "min": ("min({})", "the smallest value of {}"),
    "every": ("every {}", "every value of {}"),
    "budget": ("mean({}) of the rest", "the mean of {} over the rest"),
}
_OUTSIDE = {
    "reject": "rejected: {} leaves the mask (`kept` is False, weight 0)",
    "zero": "zeroed: {} stays in the mask and its denominator, with weight 0",
    "clamp": "clamped: {} stays, its weight is held at the nearest bound",
    "observe": "observed: nothing changes, the metrics report it",
}
_SIGNS = {
    "negative_advantage": "negative",
    "nonpositive_advantage": "negative or 0",
    "positive_advantage": "positive",
}


def metric_name(gate: Gate) -> str:
    """The metric as a user names it, with its direction where it has one."""
    return gate.metric if gate.direction is None else f"{gate.metric} {gate.direction}"


def gate_lines(gate: Gate, rule: Correction) -> tuple[tuple[str, str], ...]:
    """What a gate tests, with which bounds, what happens outside and when."""
    lines = [
        ("tests", _test(gate)),
        ("passes if", inequality(statistic(gate), *side_texts(gate), strict=gate.strict)),
        *bounds_lines(gate, unit_of(gate)),
    ]
    lines.extend(_where(gate, rule))
    lines.append(("outside", _OUTSIDE[gate.action].format(_consequence(gate))))
    lines.append(("acts", _when(gate)))
    if gate.scope == "kept":
        lines.append(("over", "the tokens that earlier gates kept"))
    return (*lines, *limit_lines(gate.limit))


def statistic(gate: Gate) -> str:
    """The formula of the value a gate compares with its bounds."""
    token = token_formula(gate)
    if gate.agg is None:
        return token
    if gate.metric == "ratio":
        return _RATIO_AGGS[gate.agg][0]
    return _AGGS[gate.agg][0].format(token)


def token_formula(gate: Gate) -> str:
    """The formula of the metric for one token."""
    return DIVERGENCES[gate.metric].formulas[gate.direction]


def _test(gate: Gate) -> str:
    one = DIVERGENCES[gate.metric].words if gate.metric != "ratio" else "the ratio"
    if gate.agg is None:
        return f"{one}, for each token"
    if gate.agg == "budget":
        least = " or only the smallest is left" if gate.strict else ""
        return f"{one}; the tokens with the largest go, until the mean over the rest of the batch fits{least}"
    unit = "turn (contiguous run of the mask)" if gate.level == "segment" else gate.level
    words = _RATIO_AGGS[gate.agg][1] if gate.metric == "ratio" else _AGGS[gate.agg][1].format(one)
    condemned = f"; one token outside fails the whole {gate.level}" if gate.agg == "every" else ""
    return f"{words}, over the tokens of each {unit}{condemned}"


def _where(gate: Gate, rule: Correction) -> list[tuple[str, str]]:
    """What the symbols stand for, where the log-ratio of the rule does not say it already."""
    target, base = (gate.pair or rule.pair).split("/")
    parts: list[str] = []
    if gate.pair is not None and gate.pair != rule.pair:
        parts.append(f"ℓ = log {target} − log {base} in this gate")
    if gate.metric in PROBABILITY_METRICS:
        parts.append(f"p and q are the probabilities under {target} and {base}")
    if gate.metric in HEAD_METRICS:
        parts.append(f"p_b and q_b are the probabilities of b under {target} and {base}")
    if DIVERGENCES[gate.metric].where:
        parts.append(DIVERGENCES[gate.metric].where)
    return [("where", "; ".join(parts))] if parts else []


def _consequence(gate: Gate) -> str:
    """What a verdict takes down; moving_away and advantage_of token spare the tokens on which the gate does not act."""
    by_token = gate.when == "moving_away" or (gate.when != "always" and gate.advantage_of == "token")
    return (
        f"the token of such a {gate.level}" if by_token and gate.level in ("segment", "sequence") else _UNIT[gate.level]
    )


def _when(gate: Gate) -> str:
    if gate.when == "always":
        return "always"
    if gate.when == "moving_away":
        return "only on tokens that the update pushes further away: advantage × ℓ > 0"
    sign = _SIGNS[gate.when]
    if gate.level in ("token", "batch") or gate.advantage_of == "token":
        return f"only on tokens with {sign} advantage"
    unit = "turns" if gate.level == "segment" else "sequences"
    return f"only on {unit} whose mean advantage is {sign}"


def limit_lines(limit: Limit | None) -> list[tuple[str, str]]:
    """The safety bound on log_r, if there is one."""
    if limit is None:
        return []
    where = "of each token, before gathering" if limit.at == "token" else "after gathering"
    return [("limit", f"ℓ is held within ±{as_written(limit.bound)} {where}")]


def gate_formula(gate: Gate, rule: Correction) -> str:
    """What a gate does, in one line of mathematics."""
    test = inequality(statistic(gate), *side_texts(gate), strict=gate.strict)
    unit = _UNIT[gate.level].removeprefix("the ")
    sentence = {
        "reject": f"keep {unit} if {test}",
        "zero": f"{unit} weighs 0 unless {test}",
        "clamp": f"weight of {unit} held at the bound unless {test}",
        "observe": f"report {test} of each {unit}",
    }[gate.action]
    if gate.agg == "budget":
        fall = {"reject": "drop", "zero": "zero", "clamp": "clamp", "observe": "report"}[gate.action]
        sentence = f"{fall} the tokens with the largest {token_formula(gate)} until {test}"
    pair = f"  [ℓ of {gate.pair}]" if gate.pair is not None and gate.pair != rule.pair else ""
    when = "" if gate.when == "always" else f"  [{_when(gate)}]"
    where = "; ".join(filter(None, [DIVERGENCES[gate.metric].where, *meanings(gate)]))
    return f"{sentence}{pair}{when}{f',  {where}' if where else ''}"


def meanings(part: Gate | Weight) -> list[str]:
    """What the symbols in its bounds stand for."""
    return [text for _, text in bounds_lines(part, unit_of(part))]


# ── bounds ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    facts = DIVERGENCES[part.metric]
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
                "ranks; 1 where none reaches it",
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
