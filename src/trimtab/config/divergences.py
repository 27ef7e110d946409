"""The divergences a gate can test: words, formula and value of each, written once for tensors and for plain numbers.

ℓ = log_r, r = e^ℓ, p = target probability, q = behavior probability. A value is worked out with the functions of `m`: `torch` for tensors,
`MATH` for numbers. It is 0 (of a factor, 1) where ℓ = 0 and p = q.

    "k2": Divergence("half the squared log-ratio", {None: ("ℓ²/2", lambda m, x, p, q: x * x * 0.5)})      of ℓ = 0.2: 0.02
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal


def _clip(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


MATH = SimpleNamespace(exp=math.exp, expm1=math.expm1, log=math.log, maximum=max, clip=_clip)
"""The functions of a formula for plain numbers, under the names that torch has for tensors."""
Value = Callable[[Any, Any, Any, Any], Any]
"""A formula of functions, ℓ, p and q; what it does not read may be None."""
BINARY_EPS = 1e-6
"""Probabilities are held within [eps, 1 − eps] in binary_kl: float32 log-probs carry no more near p = 1."""


@dataclass(frozen=True)
class Divergence:
    """What is known of a divergence before any number is seen, and its formulas by direction (None: it is the same both ways)."""

    words: str
    forms: Mapping[str | None, tuple[str, Value]]
    of: Literal["log_r", "probabilities", "head", "age"] = "log_r"  # what it reads
    neutral: float = 0.0  # its value on on-policy data
    least: float = 0.0  # never below, for one token
    most: float = math.inf  # never above, for one token
    where: str = ""  # what a formula's own symbols stand for

    @property
    def formulas(self) -> dict[str | None, str]:
        """The formula by direction, in words."""
        return {direction: text for direction, (text, _) in self.forms.items()}

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions it can be taken in; none where it is the same both ways."""
        return tuple(direction for direction in self.forms if direction is not None)


def _k3(m: Any, x: Any) -> Any:
    """r − 1 − log r by expm1, never negative: the plain form gives −6e-8 near 0 in float32."""
    return m.clip(m.expm1(x) - x, 0.0, math.inf)


def _binary_kl(m: Any, p: Any, q: Any) -> Any:
    """KL of `this token or not` under p against q; exactly 0 for p = q, finite at p = 1."""
    (p, not_p), (q, not_q) = ([m.clip(each, BINARY_EPS, 1 - BINARY_EPS) for each in (x, 1 - x)] for x in (p, q))
    return m.clip(p * m.log(p / q) + not_p * m.log(not_p / not_q), 0.0, math.inf)


def _both_ways(kl: str, back: str) -> dict[str | None, tuple[str, Value]]:
    """KL(behavior ‖ target), KL(target ‖ behavior) and the larger of the two, of `this token or not`."""
    return {
        "forward": (kl, lambda m, x, p, q: _binary_kl(m, q, p)),
        "reverse": (back, lambda m, x, p, q: _binary_kl(m, p, q)),
        "max": (f"max({kl}, {back})", lambda m, x, p, q: m.maximum(_binary_kl(m, p, q), _binary_kl(m, q, p))),
    }


_BUCKETS = "b: the recorded ids, the sampled one, and all others together"

# Of head divergences a formula knows two ids: the sampled one, and all others together. On tensors `core/head.py` works them out over all.
DIVERGENCES: dict[str, Divergence] = {
    "ratio": Divergence(
        "the probability ratio, gathered in log space", {None: ("r", lambda m, x, p, q: x)}, neutral=1.0
    ),
    "k1": Divergence(
        "the plain estimate of the KL, signed",
        {"forward": ("−ℓ", lambda m, x, p, q: -x), "reverse": ("ℓ", lambda m, x, p, q: x)},
        least=-math.inf,
    ),
    "k2": Divergence("half the squared log-ratio", {None: ("ℓ²/2", lambda m, x, p, q: x * x * 0.5)}),
    "k3": Divergence(
        "the estimate of the KL that is never negative",
        {
            "forward": ("r − 1 − ℓ", lambda m, x, p, q: _k3(m, x)),
            "reverse": ("1/r − 1 + ℓ", lambda m, x, p, q: _k3(m, -x)),
            "max": (
                "max(r − 1 − ℓ, 1/r − 1 + ℓ)",
                lambda m, x, p, q: _k3(m, abs(x)),
            ),  # it is larger on the positive side
        },
    ),
    "binary_kl": Divergence(
        "the exact KL of `this token or not`, at most that of the distributions",
        _both_ways("b(q, p)", "b(p, q)"),
        of="probabilities",
        most=math.log((1 - BINARY_EPS) / BINARY_EPS),
        where="b(x, y) = x·log(x/y) + (1−x)·log((1−x)/(1−y))",
    ),
    "tv": Divergence(
        "the distance of the two probabilities, at most the total variation",
        {None: ("|p − q|", lambda m, x, p, q: abs(p - q))},
        of="probabilities",
        most=1.0,
    ),
    "prob_diff": Divergence(
        "the signed difference of the two probabilities",
        {None: ("p − q", lambda m, x, p, q: p - q)},
        of="probabilities",
        least=-1.0,
        most=1.0,
    ),
    "abs_log_ratio": Divergence("the distance of the two log-probs", {None: ("|ℓ|", lambda m, x, p, q: abs(x))}),
    "ratio_deviation": Divergence(
        "the distance of the ratio from 1", {None: ("|r − 1|", lambda m, x, p, q: abs(m.expm1(x)))}
    ),
    "mult_prob_error": Divergence(
        "the factor between the two probabilities, 1 or more",
        {None: ("e^|ℓ|", lambda m, x, p, q: m.exp(abs(x)))},
        neutral=1.0,
        least=1.0,
    ),
    "second_moment": Divergence("the squared log-ratio", {None: ("ℓ²", lambda m, x, p, q: x * x)}),
    "head_tv": Divergence(
        "the total variation over the head of the distributions",
        {None: ("½·Σ|p_b − q_b|", lambda m, x, p, q: abs(p - q))},
        of="head",
        most=1.0,
        where=_BUCKETS,
    ),
    "head_kl": Divergence(
        "the KL over the head of the distributions",
        _both_ways("Σ q_b·log(q_b/p_b)", "Σ p_b·log(p_b/q_b)"),
        of="head",
        where=_BUCKETS,
    ),
    "age": Divergence(
        "how many versions ago the token was sampled",
        {None: ("a", lambda m, x, p, q: 0.0)},  # the tokens of an example are fresh
        of="age",
        where="a = the learner's version − that of the weights that sampled; one that is not known lies above every bound",
    ),
}
HEAD_METRICS = tuple(name for name, each in DIVERGENCES.items() if each.of == "head")
"""Divergences of distributions, as far as their heads tell: at most those over the whole vocabulary."""


def plain_value(metric: str, direction: str | None, log_r: float, p: float, q: float) -> float:
    """A divergence of one token in plain numbers; of a ratio its logarithm, in which ratios are gathered."""
    _, formula = DIVERGENCES[metric].forms[direction]
    return formula(MATH, log_r, p, q)
