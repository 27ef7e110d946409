"""REINFORCE times a detached, bounded ratio: CISPO, and TOPR, which bounds only where the advantage is negative."""

from __future__ import annotations

from trimtab.config.losses import Cispo, Topr
from trimtab.core.ratio import above, below, is_inside
from trimtab.losses.terms import Surrogate, Terms, ratio


def cispo(loss: Cispo, terms: Terms) -> Surrogate:
    """−sg(bounded ρ)·A·log current."""
    log_rho = terms.log_ratio.detach()
    if loss.level == "sequence":
        log_rho = terms.log_ratio_over(loss.scope).detach()
        log_rho = terms.layout.spread(terms.sequence_mean(log_rho, loss.scope))
    rho = ratio(log_rho, limit=loss.log_limit)
    if loss.outside == "clamp":
        factor = rho.clamp(min=loss.lower, max=loss.upper) if (loss.lower, loss.upper) != (None, None) else rho
    else:
        factor = rho * is_inside(rho, loss.lower, loss.upper)
    most = float("inf") if loss.upper is None else loss.upper
    marks = {"clip_high": lambda: above(rho, most), "clip_low": lambda: below(rho, loss.lower or 0.0)}
    return Surrogate(-terms.advantages * factor * terms.log_prob, marks)


def topr(loss: Topr, terms: Terms) -> Surrogate:
    """−A·log current, times sg(bounded r) where A < 0; r = ρ of the token, or its product over the sequence.

    Either sign of A has a weight of its own.
    """
    if loss.level == "sequence":
        by_sequence = terms.layout.total(terms.log_ratio_over(loss.scope).detach())
        rho = ratio(terms.layout.spread(by_sequence)).expand(terms.kept.shape)
    else:
        rho = ratio(terms.log_ratio.detach())
    falls = below(terms.advantages, 0.0)
    factor = loss.positive + falls * (loss.negative * rho.clamp(loss.lower, loss.upper) - loss.positive)
    marks = {
        "clip_high": lambda: above(rho, loss.upper) * falls,
        "clip_low": lambda: below(rho, loss.lower) * falls,
    }
    return Surrogate(-terms.advantages * factor * terms.log_prob, marks)
