"""The policy gradient without a trust region: REINFORCE, and its importance-sampled form."""

from __future__ import annotations

from trimtab.config.losses import ImportancePg, Reinforce
from trimtab.losses.terms import Surrogate, Terms, ratio


def reinforce(loss: Reinforce, terms: Terms) -> Surrogate:
    """−A·log current."""
    return Surrogate(-terms.advantages * terms.log_prob)


def importance_pg(loss: ImportancePg, terms: Terms) -> Surrogate:
    """−Aρ, with the gradient of ρ."""
    return Surrogate(-terms.advantages * ratio(terms.log_ratio, limit=loss.log_limit))
