"""The divergences a gate can test: what is known of each before any number is seen."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class MetricFacts:
    """A divergence in words and formula; ℓ = log_r, r = e^ℓ, p = target probability, q = behavior probability."""

    formula: str
    words: str
    neutral: float  # its value on on-policy data
    least: float  # never below, for one token
    most: float  # never above, for one token
    directions: tuple[str, ...] = ()


BINARY_EPS = 1e-6
"""Probabilities are held within [eps, 1 − eps] in binary_kl: float32 log-probs carry no more near p = 1."""

_BOTH = ("forward", "reverse")

METRICS: dict[str, MetricFacts] = {
    "ratio": MetricFacts("r", "the probability ratio, gathered in log space", 1.0, 0.0, math.inf),
    "k1": MetricFacts("forward −ℓ, reverse ℓ", "the plain KL estimate, signed", 0.0, -math.inf, math.inf, _BOTH),
    "k2": MetricFacts("ℓ²/2", "half the squared log-ratio", 0.0, 0.0, math.inf),
    "k3": MetricFacts(
        "forward r − 1 − ℓ, reverse 1/r − 1 + ℓ",
        "the KL estimate that is never negative",
        0.0,
        0.0,
        math.inf,
        (*_BOTH, "max"),
    ),
    "binary_kl": MetricFacts(
        "forward q·log(q/p) + (1−q)·log((1−q)/(1−p)), reverse with p and q exchanged",
        "the exact KL of `this token or not`",
        0.0,
        0.0,
        math.log((1 - BINARY_EPS) / BINARY_EPS),
        (*_BOTH, "max"),
    ),
    "tv": MetricFacts("|p − q|", "the distance of the two probabilities", 0.0, 0.0, 1.0),
    "prob_diff": MetricFacts("p − q", "the signed difference of the two probabilities", 0.0, -1.0, 1.0),
    "abs_log_ratio": MetricFacts("|ℓ|", "the distance of the two log-probs", 0.0, 0.0, math.inf),
    "ratio_deviation": MetricFacts("|r − 1|", "the distance of the ratio from 1", 0.0, 0.0, math.inf),
    "mult_prob_error": MetricFacts("e^|ℓ|", "the factor between the two probabilities, 1 or more", 1.0, 1.0, math.inf),
    "second_moment": MetricFacts("ℓ²", "the squared log-ratio", 0.0, 0.0, math.inf),
}
