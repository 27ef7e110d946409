"""DRO (Kimi k1.5): the policy gradient with a squared pull back to the anchor."""

from __future__ import annotations

from trimtab.config.losses import Dro
from trimtab.losses.terms import Surrogate, Terms


def dro(loss: Dro, terms: Terms) -> Surrogate:
    """−A·log current + (beta/2)·(log ρ)²."""
    return Surrogate(-terms.advantages * terms.log_prob + terms.log_ratio.square() * (loss.beta / 2))
