"""The divergences a gate can test: what is known of each before any number is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MetricFacts:
    """A divergence in words and formula; ℓ = log_r, r = e^ℓ, p = target probability, q = behavior probability."""

    formulas: Mapping[str | None, str]  # by direction; None: it has none
    words: str
    neutral: float  # its value on on-policy data
    least: float  # never below, for one token
    most: float  # never above, for one token
    where: str = ""  # what a formula's own symbols stand for

    @property
    def directions(self) -> tuple[str, ...]:
        """The directions it can be taken in; none where it is the same both ways."""
        return tuple(direction for direction in self.formulas if direction is not None)


BINARY_EPS = 1e-6
"""Probabilities are held within [eps, 1 − eps] in binary_kl: float32 log-probs carry no more near p = 1."""

_K3: dict[str | None, str] = {"forward": "r − 1 − ℓ", "reverse": "1/r − 1 + ℓ", "max": "max(r − 1 − ℓ, 1/r − 1 + ℓ)"}
_BINARY: dict[str | None, str] = {"forward": "b(q, p)", "reverse": "b(p, q)", "max": "max(b(q, p), b(p, q))"}
_BINARY_WHERE = "b(x, y) = x·log(x/y) + (1−x)·log((1−x)/(1−y))"
_BINARY_MOST = math.log((1 - BINARY_EPS) / BINARY_EPS)

_HEAD_KL: dict[str | None, str] = {
    "forward": "Σ q_b·log(q_b/p_b)",
    "reverse": "Σ p_b·log(p_b/q_b)",
    "max": "max(Σ q_b·log(q_b/p_b), Σ p_b·log(p_b/q_b))",
}
_BUCKETS = "b: the recorded ids, the sampled one, and all others together"
HEAD_METRICS = ("head_tv", "head_kl")
"""Divergences of distributions, as far as their heads tell: at most those over the whole vocabulary."""

METRICS: dict[str, MetricFacts] = {
    "ratio": MetricFacts({None: "r"}, "the probability ratio, gathered in log space", 1.0, 0.0, math.inf),
    "k1": MetricFacts(
        {"forward": "−ℓ", "reverse": "ℓ"}, "the plain estimate of the KL, signed", 0.0, -math.inf, math.inf
    ),
    "k2": MetricFacts({None: "ℓ²/2"}, "half the squared log-ratio", 0.0, 0.0, math.inf),
    "k3": MetricFacts(_K3, "the estimate of the KL that is never negative", 0.0, 0.0, math.inf),
    "binary_kl": MetricFacts(
        _BINARY,
        "the exact KL of `this token or not`, at most that of the distributions",
        0.0,
        0.0,
        _BINARY_MOST,
        _BINARY_WHERE,
    ),
    "tv": MetricFacts(
        {None: "|p − q|"}, "the distance of the two probabilities, at most the total variation", 0.0, 0.0, 1.0
    ),
    "prob_diff": MetricFacts({None: "p − q"}, "the signed difference of the two probabilities", 0.0, -1.0, 1.0),
    "abs_log_ratio": MetricFacts({None: "|ℓ|"}, "the distance of the two log-probs", 0.0, 0.0, math.inf),
    "ratio_deviation": MetricFacts({None: "|r − 1|"}, "the distance of the ratio from 1", 0.0, 0.0, math.inf),
    "mult_prob_error": MetricFacts(
        {None: "e^|ℓ|"}, "the factor between the two probabilities, 1 or more", 1.0, 1.0, math.inf
    ),
    "second_moment": MetricFacts({None: "ℓ²"}, "the squared log-ratio", 0.0, 0.0, math.inf),
    "head_tv": MetricFacts(
        {None: "½·Σ|p_b − q_b|"}, "the total variation over the head of the distributions", 0.0, 0.0, 1.0, _BUCKETS
    ),
    "head_kl": MetricFacts(_HEAD_KL, "the KL over the head of the distributions", 0.0, 0.0, math.inf, _BUCKETS),
    "age": MetricFacts(
        {None: "a"},
        "how many versions ago the token was sampled",
        0.0,
        0.0,
        math.inf,
        "a = the learner's version − that of the weights that sampled; one that is not known lies above every bound",
    ),
}
