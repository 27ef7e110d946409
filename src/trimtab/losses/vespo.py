"""VESPO: a smooth, detached function of the sequence's whole importance weight scales its policy gradient."""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

from trimtab.config.losses import Vespo
from trimtab.core.ratio import above, below
from trimtab.losses.terms import Surrogate, Terms


def vespo(loss: Vespo, terms: Terms) -> Surrogate:
    """−sg(φ(w))·A·log current."""
    weight = above(terms.weight, 0.0) if loss.weights == "inside" else None
    return Surrogate(-phi(loss, terms) * terms.advantages * terms.log_prob, weight=weight)


def phi(loss: Vespo, terms: Terms) -> Float[Tensor, "*tokens"]:
    """φ of each token's sequence: log φ = λ + k·log w − λw, which is 0 at w = 1; detached."""
    floor = math.log(loss.least)
    log_rho = terms.log_ratio_over(loss.scope).detach().clamp(-loss.log_limit, loss.log_limit)
    if loss.weights == "inside":
        log_rho = log_rho + terms.weight.clamp(min=loss.least).log().clamp(max=loss.log_limit) * terms.kept
    log_w = terms.layout.spread(terms.layout.total(log_rho).clamp(floor, loss.log_limit))
    falls = below(terms.advantages, 0.0)
    k = loss.k_positive + (loss.k_negative - loss.k_positive) * falls
    rate = loss.lambda_positive + (loss.lambda_negative - loss.lambda_positive) * falls
    return (rate + k * log_w - rate * log_w.exp()).exp()
