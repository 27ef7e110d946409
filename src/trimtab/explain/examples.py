"""A rule's examples in words: what becomes of a token, or of all, in a sequence that is on-policy elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trimtab.config.bounds import BY_TOKEN
from trimtab.config.correction import Correction
from trimtab.config.divergences import HEAD_METRICS
from trimtab.explain.arithmetic import LENGTH, Outcome, Token, outcome
from trimtab.explain.gate_words import PROBABILITY_METRICS, as_written


@dataclass(frozen=True)
class WorkedExample:
    """One token of interest, or all of them, in a sequence of LENGTH tokens that is on-policy elsewhere."""

    token: Token
    everywhere: bool = False

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The sequence, the token of interest first."""
        rest = self.token if self.everywhere else Token(0.5, 0.5)
        return (self.token, *([rest] * (LENGTH - 1)))

    @property
    def words(self) -> str:
        """The case as the subject of a sentence."""
        ratio, chance = (
            _short(math.exp(self.token.log_r)),
            f"{as_written(self.token.behavior)} → {as_written(self.token.target)}",
        )
        return f"{f'all {LENGTH} tokens' if self.everywhere else 'a token'} with ratio {ratio} ({chance})"


SETTING = (
    f"One sequence of {LENGTH} tokens, every other one at ratio 1. "
    "In brackets: the probability under the policy that sampled → under the policy compared with it."
)


def setting(rule: Correction) -> str:
    """What the examples of a rule take for granted."""
    return f"{SETTING} The entropy of a token is taken as log 1/q." if rule.needs_entropy else SETTING


CASES = (
    WorkedExample(Token(0.3, 0.9)),
    WorkedExample(Token(0.001, 0.003)),
    WorkedExample(Token(0.8, 0.2)),
    WorkedExample(Token(0.0004, 0.4)),
    WorkedExample(Token(0.5, 0.51), everywhere=True),
    WorkedExample(Token(0.5, 0.425), everywhere=True),
)


def examples(rule: Correction) -> list[tuple[str, str]]:
    """What the rule does in each case, as subject and predicate."""
    parts = [*rule.gates, *([] if rule.weight is None else [rule.weight])]
    probabilities = any(gate.metric in (*PROBABILITY_METRICS, *HEAD_METRICS) for gate in rule.gates)
    probabilities = probabilities or any(part.bound_scale in BY_TOKEN for part in parts)
    rare = CASES[1]
    return [(case.words, _fates(rule, case)) for case in CASES if probabilities or case is not rare]


def _fates(rule: Correction, case: WorkedExample) -> str:
    if not rule.needs_advantages:
        return _fate(outcome(rule, case.tokens), case)
    rising, falling = (_fate(outcome(rule, case.tokens, sign), case) for sign in (1.0, -1.0))
    return rising if rising == falling else f"{rising} if the advantage is positive, {falling} if negative"


def _fate(found: Outcome, case: WorkedExample) -> str:
    weight, rest = found.weight[0], found.weight[-1]
    cause = _cause(found)
    if not found.kept[0]:
        whole = "the whole sequence " if not found.kept[-1] else ""
        return f"{whole}rejected{cause}"
    text = f"weight {_short(weight)}{cause}"
    if case.everywhere or _short(rest) == "1":
        return text
    return f"{text}; the others {'rejected' if not found.kept[-1] else f'weigh {_short(rest)}'}"


def _cause(found: Outcome) -> str:
    """The first gate that stood in the token's way, with its number."""
    for place, finding in enumerate(found.findings, start=1):
        gate, value = finding.gate, finding.statistic[0]
        if finding.passes[0] or gate.action == "observe":
            continue
        low, high = finding.sides[0]
        above = high is not None and (low is None or value >= low)
        if gate.agg == "budget":
            return f" by gate {place} (its {_short(value)} does not fit the budget)"
        sign, bound = (">", high) if above else ("<", low)
        named = as_written if gate.bounds is None and gate.bound_scale == "none" else _short
        return f" by gate {place} ({_short(value)} {sign} {named(bound or 0.0)})"
    return ""


def _short(value: float) -> str:
    return as_written(float(f"{value:.4g}"))
