"""GMPO: the geometric mean of the clipped ratios of a sequence, times its mean advantage."""

from __future__ import annotations

from trimtab.config.losses import Gmpo
from trimtab.core.ratio import above, below
from trimtab.losses.clip import sequence_advantages
from trimtab.losses.terms import Surrogate, Terms, ratio

LEAST_WEIGHT = 1e-10
"""A weight of 0 has no logarithm; it enters the geometric mean as this."""


def gmpo(loss: Gmpo, terms: Terms) -> Surrogate:
    """−A·exp(mean of log ρ, each held on the side its advantage pushes it to)."""
    log_rho, advantages = terms.log_ratio_over(loss.scope), terms.advantages
    up, down = above(advantages, 0.0), below(advantages, 0.0)
    clipped = up * log_rho.clamp(max=loss.high) + down * log_rho.clamp(min=-loss.low)
    mean = terms.layout.spread(terms.sequence_mean(clipped, loss.scope))
    weight = None
    if loss.weights == "geometric":
        logs = terms.weight.clamp(min=LEAST_WEIGHT).log() * terms.kept
        weight = terms.layout.spread(terms.sequence_mean(logs, "kept")).exp() * terms.kept
    marks = {
        "clip_high": lambda: above(log_rho, loss.high) * up,
        "clip_low": lambda: below(log_rho, -loss.low) * down,
    }
    return Surrogate(-sequence_advantages(terms, loss.scope) * ratio(mean), marks, weight)
