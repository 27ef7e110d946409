"""The clip with the ratio turned over where the advantage is positive."""

from __future__ import annotations

import torch

from trimtab.config.losses import Aspo
from trimtab.core.ratio import above, below
from trimtab.losses.terms import Surrogate, Terms, ratio


def aspo(loss: Aspo, terms: Terms) -> Surrogate:
    """−A·ρ where A < 0, −A/ρ where A >= 0, both with the slope of log current; clipped as PPO's, held at the dual bounds."""
    # With low = high = 0.2 and both duals 3, the slope in log current:
    #   A = +1   ρ = 0.25   1/ρ = 4, held at 3   slope −3     it fell far behind: pull it up, three times at most
    #            ρ = 0.5    1/ρ = 2              slope −2
    #            ρ = 1.1    1/ρ = 0.91           slope −0.91  it rose: less
    #            ρ = 1.5    clipped              slope  0
    #   A = −1   ρ = 0.7    clipped              slope  0
    #            ρ = 1.5                         slope  1.5
    #            ρ = 4.0    held at 3            slope  3     where PPO's dual clip has none
    rho, advantages = ratio(terms.log_ratio, limit=loss.log_limit), terms.advantages
    falling, rising = rho.clamp(min=1.0 - loss.low), rho.clamp(max=1.0 + loss.high)
    turned = rising.detach().reciprocal()
    pushed = torch.where(falling > loss.dual, loss.dual * terms.log_prob, falling)
    pulled = torch.where(turned > loss.dual_positive, loss.dual_positive * terms.log_prob, rising * turned * turned)
    value = -advantages * torch.where(advantages < 0, pushed, pulled)
    now = rho.detach()
    marks = {
        "clip_high": lambda: above(now, 1.0 + loss.high) * above(advantages, 0.0),
        "clip_low": lambda: below(now, 1.0 - loss.low) * below(advantages, 0.0),
        "clip_dual": lambda: (
            above(now, loss.dual) * below(advantages, 0.0)
            + below(now, 1.0 / loss.dual_positive) * above(advantages, 0.0)
        ),
    }
    return Surrogate(value, marks)
