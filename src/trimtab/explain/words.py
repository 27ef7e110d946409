"""A correction in words and formulas: pure functions from settings to strings, for the command line, the docs and reports.

ℓ is the log-ratio of the two policies a gate or weight compares, r = e^ℓ, p and q are the two probabilities of the token.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab.config.correction import BY_PREFIX, BY_SEGMENT, Correction, Weight
from trimtab.explain.gate_words import (
    UNITS,
    bounds_lines,
    gate_formula,
    gate_lines,
    inequality,
    limit_lines,
    meanings,
    metric_name,
    side_texts,
    unit_of,
)


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
        lines.append(f"gate {place}: {gate_formula(gate, rule)}")
    where = "" if rule.weight is None else "".join(f",  {text}" for text in meanings(rule.weight))
    lines.append(f"weight: {weight_formula(rule.weight)}{' where kept, 0 elsewhere' if _rejects(rule) else ''}{where}")
    return lines if rule.centering is None else [*lines, f"centering: {CENTERED}"]


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
    lines.extend(limit_lines(weight.limit))
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
    """What the weight multiplies, where it is not 1, and what the loss is divided by."""
    denominator = {
        "trained": "the count before rejection: a rejected token does not raise the step of the others",
        "kept": "the count after rejection: the step of the survivors grows as others are rejected",
    }[rule.denominator]
    weighs = {
        "policy": "the policy-gradient term",
        "policy+kl": "the policy-gradient term and the KL-to-reference term",
    }
    lines = (("divided by", denominator),)
    if rule.weighs or any(gate.action == "zero" for gate in rule.gates):
        lines = (("weighs", weighs[rule.applies_to]), *lines)
    if rule.centering is None:
        return lines
    return (*lines, ("centered", CENTERED), ("where", CENTERED_WHERE))


def log_ratio_lines(rule: Correction) -> tuple[tuple[str, str], ...]:
    """Which policies are compared, and what must be given."""
    target, base = rule.pair.split("/")
    advantages = "; advantages (per token or per sequence)" if rule.needs_advantages else ""
    mode = {
        "decoupled": "decoupled: the trainer's own log-probs at the start of the step stand between sampler and update",
        "bypass": "bypass: two policies only, the one being trained against the one that sampled",
    }[rule.policies]
    return (
        ("formula", f"ℓ = log {target} − log {base} of each trained token; r = e^ℓ"),
        ("policies", mode),
        ("needs", f"log-probs of {_list(rule.needs)}{advantages}{_further_needs(rule)}"),
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
