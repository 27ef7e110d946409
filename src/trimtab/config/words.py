"""A correction in words and formulas: pure functions from settings to strings, for the command line, the docs and reports.

ℓ is the log-ratio of the two policies a gate or weight compares, r = e^ℓ, p and q are the two probabilities of the token.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.config.algebra import BY_PREFIX, BY_SEGMENT, Correction, Gate, Limit, Weight
from trimtab.config.bound_words import as_written as as_written
from trimtab.config.bound_words import bounds_lines, side_texts, unit_of
from trimtab.config.bound_words import inequality as inequality
from trimtab.config.metrics import HEAD_METRICS, METRICS


@dataclass(frozen=True)
class Passage:
    """A titled part of an explanation; each line is a label (may be empty) and a text."""

    title: str
    lines: tuple[tuple[str, str], ...]


def passages(rule: Correction) -> list[Passage]:
    """The whole rule, in the order in which it acts."""
    gates = [
        Passage(f"Gate {place} · {metric_name(gate)} of {UNITS[gate.level]}", gate_lines(gate, rule))
        for place, gate in enumerate(rule.gates, start=1)
    ]
    return [
        Passage("Log-ratio", log_ratio_lines(rule)),
        *gates,
        Passage("Weight", weight_lines(rule)),
        Passage("Loss", loss_lines(rule)),
    ]


def formulas(rule: Correction) -> list[str]:
    """One line per step, for a reader who wants the mathematics only."""
    target, base = rule.pair.split("/")
    lines = [f"ℓ = log {target} − log {base},  r = e^ℓ"]
    for place, gate in enumerate(rule.gates, start=1):
        lines.append(f"gate {place}: {_sentence_formula(gate, rule)}")
    where = "" if rule.weight is None else "".join(f",  {text}" for text in _meanings(rule.weight))
    lines.append(f"weight: {weight_formula(rule.weight)}{' where kept, 0 elsewhere' if _rejects(rule) else ''}{where}")
    return lines if rule.centering is None else [*lines, f"centering: {CENTERED}"]


# ── gates ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

PROBABILITY_METRICS = ("binary_kl", "tv", "prob_diff")
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
    return (*lines, *_limit_lines(gate.limit))


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
    return METRICS[gate.metric].formulas[gate.direction]


def _test(gate: Gate) -> str:
    one = METRICS[gate.metric].words if gate.metric != "ratio" else "the ratio"
    if gate.agg is None:
        return f"{one}, for each token"
    if gate.agg == "budget":
        least = " or only the smallest is left" if gate.strict else ""
        return f"{one}; the tokens with the largest go, until the mean over the rest of the batch fits{least}"
    unit = "turn (contiguous run of the mask)" if gate.level == "segment" else gate.level
    words = _RATIO_AGGS[gate.agg][1] if gate.metric == "ratio" else _AGGS[gate.agg][1].format(one)
    condemned = f"; one token outside condemns its {gate.level}" if gate.agg == "every" else ""
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
    if METRICS[gate.metric].where:
        parts.append(METRICS[gate.metric].where)
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


def _limit_lines(limit: Limit | None) -> list[tuple[str, str]]:
    if limit is None:
        return []
    where = "of each token, before gathering" if limit.at == "token" else "after gathering"
    return [("limit", f"ℓ is held within ±{as_written(limit.bound)} {where}")]


def _sentence_formula(gate: Gate, rule: Correction) -> str:
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
    where = "; ".join(filter(None, [METRICS[gate.metric].where, *_meanings(gate)]))
    return f"{sentence}{pair}{when}{f',  {where}' if where else ''}"


def _meanings(part: Gate | Weight) -> list[str]:
    """What the symbols in its bounds stand for."""
    return [text for _, text in bounds_lines(part, unit_of(part))]


# ── weight and loss ────────────────────────────────────────────────────────────────────────────────────────────────────

_RATIOS = {
    "token": ("r", "its own ratio"),
    "segment": ("e^(mean ℓ over the turn)", "the geometric mean of the ratios of its turn"),
    "segment_product": ("e^(Σ ℓ over the turn)", "the product of the ratios of its turn"),
    "geometric": ("e^(mean ℓ over the sequence)", "the geometric mean of the ratios of its sequence"),
    "sequence": ("e^(Σ ℓ over the sequence)", "the product of the ratios of its sequence"),
    "prefix": ("e^(Σ ℓ up to the token)", "the product of the ratios of its sequence up to itself"),
    "least_prefix": ("r · min(r before)", "its own ratio times the least before it in its sequence"),
}


def weight_formula(weight: Weight | None) -> str:
    """The factor on a token's loss."""
    if weight is None or weight.level == "one":
        return "1"
    ratio, (low, high) = _RATIOS[weight.level][0], side_texts(weight)
    if low is None and high is None:
        return ratio
    if weight.outside == "zero":
        return f"{ratio} if {inequality(ratio, low, high)}, else 0"
    if low is None:
        return f"min({ratio}, {high})"
    return f"max({ratio}, {low})" if high is None else f"clip({ratio}, {low}, {high})"


def weight_lines(rule: Correction) -> tuple[tuple[str, str], ...]:
    """Which ratio a token weighs, and how it is bounded."""
    weight = rule.weight
    rejected = " where kept, 0 where rejected" if _rejects(rule) else ""
    if weight is None or weight.level == "one":
        return (("formula", f"w = 1{rejected}"), ("meaning", "no ratio multiplies the loss"))
    beyond = {
        "clamp": "the weight is held at the bound (truncated)",
        "zero": "the weight is 0; the token stays in the denominator",
    }[weight.outside]
    lines = [
        ("formula", f"w = {weight_formula(weight)}{rejected}"),
        ("meaning", f"each token weighs {_RATIOS[weight.level][1]}, detached from the gradient"),
        ("beyond", beyond if side_texts(weight) != (None, None) else _without_bounds(weight, rule)),
        *bounds_lines(weight, unit_of(weight)),
    ]
    if weight.scope == "kept":
        lines.append(("over", "the tokens that the gates kept"))
    lines.extend(_limit_lines(weight.limit))
    if rule.normalize is not None:
        unit = "tokens" if weight.level in ("token", *BY_SEGMENT, *BY_PREFIX) else "sequences"
        whole = {
            "batch": "of the whole batch, across ranks",
            "group": "of its group, the responses to one prompt, all of them on one rank",
        }
        lines.append(("then", f"divided by its mean over the {unit} {whole[rule.normalize]}"))
    return tuple(lines)


_SAME_RATIO = {
    "token": ("token", None),
    "segment": ("segment", "mean"),
    "segment_product": ("segment", "sum"),
    "geometric": ("sequence", "mean"),
    "sequence": ("sequence", "sum"),
}


def _without_bounds(weight: Weight, rule: Correction) -> str:
    """What a weight without bounds can grow to: a gate on the same ratio may bound it from above."""
    same = _SAME_RATIO.get(weight.level)
    for place, gate in enumerate(rule.gates, start=1):
        fits = gate.metric == "ratio" and (gate.level, gate.agg) == same and (gate.pair or rule.pair) == rule.pair
        upper = side_texts(gate)[1]
        if fits and upper is not None and gate.when == "always" and gate.action != "observe":
            return f"no bounds of its own; gate {place} keeps it at or below {upper}"
    unit = {"sequence": "sequence", "geometric": "sequence", "segment": "segment", "segment_product": "segment"}.get(
        weight.level, "token"
    )
    return f"no bounds: one {unit} can dominate the step"


CENTERED = "loss − Σ_b q_b·sg(c_b)·log current_b"
"""What a token's loss becomes under score centering."""
CENTERED_WHERE = (
    "c_b is the slope of the loss, weight and token gates included, had b been sampled; b: the recorded ids, and all others together; "
    "q_b: the sampler's probability"
)


def loss_lines(rule: Correction) -> tuple[tuple[str, str], ...]:
    """What the weight multiplies and what the loss is divided by."""
    denominator = {
        "trained": "the count before rejection: a rejected token does not raise the step of the others",
        "kept": "the count after rejection: the step of the survivors grows as others are rejected",
    }[rule.denominator]
    weighs = {
        "policy": "the policy-gradient term",
        "policy+kl": "the policy-gradient term and the KL-to-reference term",
    }
    lines = (("weighs", weighs[rule.applies_to]), ("divided by", denominator))
    if rule.centering is None:
        return lines
    return (*lines, ("centered", CENTERED), ("where", CENTERED_WHERE))


def log_ratio_lines(rule: Correction) -> tuple[tuple[str, str], ...]:
    """Which policies are compared, and what must be given."""
    target, base = rule.pair.split("/")
    advantages = "and advantages (per token or per sequence)" if rule.needs_advantages else "no advantages"
    mode = {
        "decoupled": "decoupled: the trainer's own log-probs at the start of the step stand between sampler and update",
        "bypass": "bypass: two policies only, the one being trained against the one that sampled",
    }[rule.policies]
    return (
        ("formula", f"ℓ = log {target} − log {base} of each trained token; r = e^ℓ"),
        ("policies", mode),
        ("needs", f"log-probs of {_list(rule.needs)}; {advantages}{_further_needs(rule)}"),
    )


def _further_needs(rule: Correction) -> str:
    head = "; the head of the sampler's distribution (`head`)" if rule.centering is not None or rule.needs_head else ""
    further = {
        "; the age of each token (`age`)": rule.needs_age,
        "; the entropy of each token (`entropy`)": rule.needs_entropy,
        "; a prompt id per sequence (`group`)": rule.needs_group,
    }
    return head + "".join(text for text, needed in further.items() if needed)


def _rejects(rule: Correction) -> bool:
    return any(gate.action == "reject" for gate in rule.gates)


def _list(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
