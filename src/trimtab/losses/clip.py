"""PPO's clip, and the family that clips another ratio: GSPO and LUSPO (the geometric mean of the sequence)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from trimtab.config.losses import Clip, ClipCov, Gspo, Luspo
from trimtab.core.ratio import above, at_most, below
from trimtab.losses.terms import Surrogate, Terms, ratio

Bounds = Clip | Gspo | Luspo | ClipCov
"""The losses that clip a ratio to [1 − low, 1 + high]."""


def clip(loss: Clip, terms: Terms) -> Surrogate:
    """max(−Aρ, −A·clip(ρ)), at most dual·|A| where A < 0."""
    rho = ratio(terms.log_ratio, limit=loss.log_limit)
    value = clipped(loss, rho, terms.advantages, dual=loss.dual, cap=loss.ratio_cap)
    return Surrogate(value, marks(loss, rho, terms.advantages, loss.dual))


def gspo(loss: Gspo, terms: Terms) -> Surrogate:
    """The clip on the geometric mean ratio of each sequence or turn."""
    units = terms.batch.turns if loss.level == "segment" else terms.layout
    mean = terms.sequence_mean(terms.log_ratio_over(loss.scope), loss.scope, units)
    if loss.level == "sequence-token":
        own = terms.log_ratio - terms.log_ratio.detach()  # 0, with the token's own gradient
        log_rho = own + units.spread(mean.detach())
    else:
        log_rho = units.spread(mean)
    rho = ratio(log_rho, upper=loss.log_upper)
    advantages = sequence_advantages(terms, loss.scope) if loss.advantage == "sequence" else terms.advantages
    value = clipped(loss, rho, advantages, dual=loss.dual, cap=loss.ratio_cap)
    return Surrogate(value, marks(loss, rho, advantages, loss.dual))


def luspo(loss: Luspo, terms: Terms) -> Surrogate:
    """GSPO times the length of the sequence."""
    mean = terms.sequence_mean(terms.log_ratio_over(loss.scope), loss.scope)
    rho = ratio(terms.layout.spread(mean))
    value = clipped(loss, rho, terms.advantages) * terms.layout.spread(terms.lengths)
    return Surrogate(value, marks(loss, rho, terms.advantages))


class _Clipped(torch.autograd.Function):
    """max(−Aρ, −A·clip(ρ)) by hand: plain autograd keeps a mask per branch, which costs more than all the rest of a loss.

    The second output is the slope, for backward alone.
    """

    @staticmethod
    def forward(
        rho: Tensor, advantages: Tensor, low: float, high: float, dual: float | None, cap: float | None
    ) -> tuple[Tensor, Tensor]:
        free = advantages * (rho if cap is None else rho.clamp(max=cap))
        held = rho.clamp(low, high).mul_(advantages)
        # Inside the bounds both branches are one number with one slope, so a tie is open.
        open_ = at_most(free, held)
        value = torch.minimum(free, held, out=held).neg_()
        if cap is not None:
            open_ *= 1.0 - above(rho, cap)
        if dual is not None:
            most = advantages.abs().mul_(dual)
            open_ *= 1.0 - above(value, most)
            value = torch.minimum(value, most)
        return value, open_.mul_(advantages).neg_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None, None, None, None


def clipped(
    bounds: Bounds, rho: Tensor, advantages: Tensor, *, dual: float | None = None, cap: float | None = None
) -> Tensor:
    """The clipped surrogate of a ratio: where A > 0 no gain above 1 + high, where A < 0 none below 1 − low."""
    rho, advantages = torch.broadcast_tensors(rho, advantages)
    found: Any = _Clipped.apply(rho, advantages, 1.0 - bounds.low, 1.0 + bounds.high, dual, cap)
    return found[0]


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
