"""PPO's clip, and the family that clips another ratio: GSPO and LUSPO (the geometric mean of the sequence)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trimtab.config.losses import Clip, ClipCov, Fipo, Gspo, Luspo
from trimtab.core.ratio import above, below
from trimtab.losses.terms import Surrogate, Terms, ratio

Bounds = Clip | Gspo | Luspo | ClipCov | Fipo
"""The losses that clip a ratio to [1 − low, 1 + high]."""


def clip(loss: Clip, terms: Terms) -> Surrogate:
    """max(−Aρ, −A·clip(ρ)), at most dual·|A| where A < 0."""
    rho = ratio(terms.log_ratio, limit=loss.log_limit)
    value = clip_surrogate(loss, rho, terms.advantages, dual=loss.dual, cap=loss.ratio_cap)
    return Surrogate(value, marks(loss, rho, terms.advantages, loss.dual))


def gspo(loss: Gspo, terms: Terms) -> Surrogate:
    """The clip on the geometric mean ratio of each sequence or turn."""
    units = terms.batch.turns if loss.level == "segment" else terms.layout
    mean = terms.sequence_mean(terms.log_ratio_over(loss.scope), loss.scope, units)
    if loss.level == "sequence-token":
        by_token = terms.log_ratio - terms.log_ratio.detach()  # 0, with the token's own gradient
        log_rho = by_token + units.spread(mean.detach())
    else:
        log_rho = units.spread(mean)
    rho = ratio(log_rho, upper=loss.log_upper)
    advantages = sequence_advantages(terms, loss.scope) if loss.advantage == "sequence" else terms.advantages
    value = clip_surrogate(loss, rho, advantages, dual=loss.dual, cap=loss.ratio_cap)
    return Surrogate(value, marks(loss, rho, advantages, loss.dual))


def luspo(loss: Luspo, terms: Terms) -> Surrogate:
    """GSPO times the length of the sequence."""
    mean = terms.sequence_mean(terms.log_ratio_over(loss.scope), loss.scope)
    rho = ratio(terms.layout.spread(mean))
    value = clip_surrogate(loss, rho, terms.advantages) * terms.layout.spread(terms.lengths)
    return Surrogate(value, marks(loss, rho, terms.advantages))


def clip_surrogate(
    bounds: Bounds, rho: Tensor, advantages: Tensor, *, dual: float | None = None, cap: float | None = None
) -> Tensor:
    """The clipped surrogate of a ratio: where A > 0 no gain above 1 + high, where A < 0 none below 1 − low."""
    # With low = high = 0.2 and dual = 3, the gain and its slope in ρ:
    #   A = +1   ρ = 0.7   min( 0.7,  0.8) =  0.7   slope  1   it fell: pull it up
    #            ρ = 1.1   min( 1.1,  1.1) =  1.1   slope  1
    #            ρ = 1.5   min( 1.5,  1.2) =  1.2   slope  0   it rose far enough
    #   A = −1   ρ = 0.7   min(−0.7, −0.8) = −0.8   slope  0   it fell far enough
    #            ρ = 1.5   min(−1.5, −1.2) = −1.5   slope −1   it rose: push it down
    #            ρ = 4.0   min(−4.0, −1.2) = −4.0, but at least −3: slope 0
    free = advantages * (rho if cap is None else rho.clamp(max=cap))
    clipped = advantages * rho.clamp(1.0 - bounds.low, 1.0 + bounds.high)
    gain = torch.where(free <= clipped, free, clipped)  # a tie takes the slope of ρ; torch.minimum would halve it
    least = None if dual is None else -dual * advantages.abs()
    return -gain if least is None else -torch.where(gain < least, least, gain)


def marks(
    bounds: Bounds, rho: Tensor, advantages: Tensor, dual: float | None = None
) -> dict[str, Callable[[], Tensor]]:
    """Where the clip takes the gradient away, for each sign of the advantage."""
    rho = rho.detach()
    found = {
        "clip_high": lambda: above(rho, 1.0 + bounds.high) * above(advantages, 0.0),
        "clip_low": lambda: below(rho, 1.0 - bounds.low) * below(advantages, 0.0),
    }
    return found if dual is None else found | {"clip_dual": lambda: above(rho, dual) * below(advantages, 0.0)}


def sequence_advantages(terms: Terms, scope: str) -> Tensor:
    """The mean advantage of each sequence, over its tokens."""
    return terms.layout.spread(terms.sequence_mean(terms.advantages * terms.tokens(scope), scope))
