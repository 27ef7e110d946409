"""DPPO: a trust region on probabilities instead of ratios; tokens that have already gone far enough are left out."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.config.losses import DppoKl, DppoTv
from trimtab.core.divergence import binary_kl
from trimtab.core.ratio import above, below
from trimtab.losses.terms import Surrogate, Terms, ratio


def dppo_tv(loss: DppoTv, terms: Terms) -> Surrogate:
    """Out: A > 0 and p − p_anchor > high, or A < 0 and p − p_anchor < −low."""
    moved = terms.batch.probability("current") - terms.batch.probability(terms.anchor)
    return _without(loss, terms, above(moved, loss.high), below(moved, -loss.low))


def dppo_kl(loss: DppoKl, terms: Terms) -> Surrogate:
    """Out: the probability moved the way A pushes it, and the binary KL(anchor ‖ current) exceeds the bound."""
    now, anchor = terms.batch.probability("current"), terms.batch.probability(terms.anchor)
    apart = binary_kl(anchor, now)
    return _without(
        loss, terms, above(apart, loss.high) * above(now, anchor), above(apart, loss.low) * below(now, anchor)
    )


def _without(loss: DppoTv | DppoKl, terms: Terms, too_high: Tensor, too_low: Tensor) -> Surrogate:
    advantages = terms.advantages
    high, low = too_high.mul_(above(advantages, 0.0)), too_low.mul_(below(advantages, 0.0))
    push = -advantages * (1.0 - high - low)
    if loss.gradient == "ratio":
        value = push * _ratio_under_cap(loss, terms.log_ratio)
    else:
        value = push * _ratio_under_cap(loss, terms.log_ratio.detach()) * terms.log_prob
    return Surrogate(value, {"clip_high": lambda: high, "clip_low": lambda: low})


def _ratio_under_cap(loss: DppoTv | DppoKl, log_ratio: Tensor) -> Tensor:
    rho = ratio(log_ratio, limit=loss.log_limit)
    return rho if loss.ratio_cap is None else torch.clamp(rho, max=loss.ratio_cap)
