"""SAPO: a sigmoid in the place of the clip, steeper where the advantage is negative."""

from __future__ import annotations

from trimtab.config.losses import Sapo
from trimtab.core.ratio import above
from trimtab.losses.clip import sequence_advantages
from trimtab.losses.terms import Surrogate, Terms, ratio


def sapo(loss: Sapo, terms: Terms) -> Surrogate:
    """−A·(4/τ)·sigmoid(τ(ρ − 1)); 4/τ makes the slope at ρ = 1 that of the policy gradient."""
    log_rho = terms.log_ratio
    if loss.level == "sequence":
        log_rho = terms.layout.spread(terms.sequence_mean(terms.log_ratio_over(loss.scope), loss.scope))
    rho = ratio(log_rho, limit=loss.log_limit)
    advantages = sequence_advantages(terms, loss.scope) if loss.advantage == "sequence" else terms.advantages
    tau = loss.tau_negative + (loss.tau_positive - loss.tau_negative) * above(advantages, 0.0)
    return Surrogate(-advantages * (4.0 / tau) * (tau * (rho - 1.0)).sigmoid())
