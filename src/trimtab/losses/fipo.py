"""PPO's clip times what a token led to: the discounted drift of the tokens after it."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.losses import Fipo
from trimtab.core.layout import ends, reverse_scan
from trimtab.core.ratio import above, at_most, below
from trimtab.losses.clip import clip_surrogate, marks
from trimtab.losses.terms import Surrogate, Terms, ratio

SAFE = (0.8, 1.0)
"""Where the weight is held of a token that is pushed down though it became far likelier."""


def fipo(loss: Fipo, terms: Terms) -> Surrogate:
    """max(−Aρ, −A·clip(ρ))·sg(w)."""
    rho, advantages = ratio(terms.log_ratio), terms.advantages
    value = clip_surrogate(loss, rho, advantages, cap=loss.ratio_cap)
    return Surrogate(value * _influence(loss, terms, rho.detach()), marks(loss, rho, advantages))


@torch.no_grad()
def _influence(loss: Fipo, terms: Terms, rho: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """w of each token: with γ = 1/2 and log ρ of 0.2, −0.4, 0.4 the sums are 0.1, −0.2 and 0.4."""
    drift = terms.log_ratio_over("trained").detach()
    if loss.ratio_cap is not None:
        drift = drift * at_most(ratio(drift), loss.ratio_cap)
    go = (1.0 - ends(terms.layout, terms.batch.valid).flatten()) * loss.decay
    weight = ratio(reverse_scan(go, drift.flatten()).view(drift.shape))
    if (loss.lower, loss.upper) != (None, None):
        weight = weight.clamp(loss.lower, loss.upper)
    if loss.safety is None:
        return weight
    far = above(rho, loss.safety) * below(terms.advantages, 0.0)
    return torch.where(far > 0, weight.clamp(*SAFE), weight)
