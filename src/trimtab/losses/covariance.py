"""Losses that treat tokens of high covariance apart: Clip-Cov leaves some out, KL-Cov penalises the highest.

Covariance, its means and its order are those of the kept tokens of the call, over all ranks; a rejected token has no part.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.losses import ClipCov, KlCov
from trimtab.core.quantiles import largest
from trimtab.core.ratio import above, below, zero_outside
from trimtab.losses.clip import clip_surrogate, marks
from trimtab.losses.terms import Surrogate, Terms, ratio


def clip_cov(loss: ClipCov, terms: Terms) -> Surrogate:
    """The clip, less a random choice of the tokens whose covariance lies between the bounds and that are not clipped."""
    rho = ratio(terms.log_ratio)
    signs = marks(loss, rho, terms.advantages)
    value, number = covariance(terms)
    open_ = 1.0 - signs["clip_high"]() - signs["clip_low"]()
    candidates = terms.kept * open_ * above(value, loss.lower) * below(value, loss.upper)
    keys = torch.rand(value.shape, generator=terms.generator, device=value.device, dtype=torch.float32)
    out = largest(keys, candidates, (number * loss.fraction).floor().clamp(min=1), terms.layout.ranks).to(value.dtype)
    return Surrogate(clip_surrogate(loss, rho, terms.advantages) * (1.0 - out), signs | {"cov": lambda: out})


def kl_cov(loss: KlCov, terms: Terms) -> Surrogate:
    """−Aρ, plus coefficient·|log ρ| on the tokens of highest covariance."""
    value, number = covariance(terms)
    most = (number * loss.fraction).floor().clamp(min=1)
    chosen = largest(value, terms.kept, most, terms.layout.ranks).to(value.dtype)
    penalty = chosen * terms.log_ratio.abs() * loss.coefficient
    return Surrogate(-terms.advantages * ratio(terms.log_ratio) + penalty, {"cov": lambda: chosen})


@torch.no_grad()
def covariance(terms: Terms) -> tuple[Float[Tensor, "*tokens"], Float[Tensor, ""]]:
    """(A − mean A)·(log current − mean log current) of each token, over the kept ones, and their number."""
    kept, log_prob = terms.kept, zero_outside(terms.current.detach(), terms.kept)
    # in float64, where the order in which tokens lie or ranks hold them does not decide how a mean is rounded
    parts = (terms.advantages * kept, log_prob, kept)
    sums = torch.stack([each.sum(dtype=torch.float64) for each in parts])
    first, second, number = terms.layout.ranks.total(sums).unbind()
    mean, middle = (each / number.clamp(min=1.0) for each in (first, second))
    value = (terms.advantages - mean.to(kept.dtype)) * (log_prob - middle.to(kept.dtype))
    return value, number
