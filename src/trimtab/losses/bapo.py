"""PPO's clip with bounds found for each batch, so that what is gained balances what is lost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.losses import Bapo
from trimtab.core.ratio import above, below
from trimtab.losses.terms import Surrogate, Terms, ratio


@dataclass(frozen=True, eq=False)
class FoundBounds:
    """What a search ended with, as 0-d tensors: the host never looks."""

    lower: Float[Tensor, ""]
    upper: Float[Tensor, ""]


EPS = 1e-8
"""Added to the losses that divide, as the recipe has it."""


def bapo(loss: Bapo, terms: Terms) -> Surrogate:
    """max(−Aρ, −A·clip(ρ)) between the bounds of this batch, at most dual·|A| where A < 0."""
    rho, advantages = ratio(terms.log_ratio, limit=loss.log_limit), terms.advantages
    bounds = balanced_bounds(loss, rho.detach(), terms)
    free, clipped = advantages * rho, advantages * torch.clamp(rho, bounds.lower, bounds.upper)
    gain = torch.where(free <= clipped, free, clipped)  # a tie takes the slope of ρ
    dual = loss.dual
    if dual is not None:
        least = -dual * advantages.abs()
        gain = torch.where(gain < least, least, gain)
    now = rho.detach()
    marks = {
        "clip_high": lambda: above(now, bounds.upper) * above(advantages, 0.0),
        "clip_low": lambda: below(now, bounds.lower) * below(advantages, 0.0),
        "bound_high": lambda: bounds.upper.expand(now.shape),
        "bound_low": lambda: bounds.lower.expand(now.shape),
    }
    if dual is not None:
        marks["clip_dual"] = lambda: above(now, dual) * below(advantages, 0.0)
    return Surrogate(-gain, marks)


@torch.no_grad()
def balanced_bounds(loss: Bapo, rho: Float[Tensor, "*tokens"], terms: Terms) -> FoundBounds:
    """The first bounds in the order of the search under which gains reach `target` times losses; the last where none does.

    Gains depend on the upper bound alone and losses on the lower one, so that one sum for each bound, all in one collective, is all
    a search needs: no step waits for the one before.
    """
    worth = terms.advantages * terms.kept
    gains, costs = worth.clamp(min=0.0), worth.clamp(max=0.0).neg()
    sums = [(gains * rho.clamp(max=bound)).sum(dtype=torch.float64) for bound in loss.uppers]
    sums += [(costs * rho.clamp(min=bound)).sum(dtype=torch.float64) for bound in loss.lowers]
    total = terms.layout.ranks.total(torch.stack(sums))
    gained, lost = total.split([len(loss.uppers), len(loss.lowers)])
    lowers, uppers = (total.new_tensor(bounds) for bounds in (loss.lowers, loss.uppers))

    low = _first(_reaches(loss, gained[:1], lost))
    left = lost.take(low)  # an index that is a tensor of no dimension would be read by the host
    high = _first(_reaches(loss, gained, left))
    return FoundBounds(lowers.take(low).to(rho.dtype), uppers.take(high).to(rho.dtype))


def _reaches(loss: Bapo, gained: Tensor, lost: Tensor) -> Tensor:
    """Whether gains are enough; where nothing is lost, they always are."""
    return (lost <= 0) | (gained / (lost + EPS) >= loss.target)


def _first(enough: Tensor) -> Tensor:
    """The place of the first True, of the last value where none is."""
    places = torch.arange(len(enough), device=enough.device)
    return torch.where(enough, places, len(enough) - 1).amin()
