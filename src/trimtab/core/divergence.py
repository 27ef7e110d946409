"""The divergences: one row of a table each. ℓ = log_r, p = target probability, q = behavior probability.

Every function gives its neutral value where ℓ = 0 and p = q, so masked tokens (which hold just that) add nothing;
`mult_prob_error`, whose neutral value is 1, is masked by its caller.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from trimtab.config.metrics import BINARY_EPS

_HELD = (BINARY_EPS, 1 - BINARY_EPS)


def k3(log_r: Tensor) -> Tensor:
    """r − 1 − log r by expm1, never negative: the plain form gives −6e-8 near 0 in float32."""
    return log_r.expm1().sub_(log_r).clamp_(min=0.0)


def binary_kl(p: Tensor, q: Tensor) -> Tensor:
    """KL of `this token or not` under p against q; exactly 0 for p = q, finite at p = 1."""
    (p, not_p), (q, not_q) = ((each.clamp(*_HELD), (1 - each).clamp(*_HELD)) for each in (p, q))
    return (p * (p / q).log() + not_p * (not_p / not_q).log()).clamp_(min=0.0)


FROM_LOG_RATIO: dict[tuple[str, str | None], Callable[[Tensor], Tensor]] = {
    ("ratio", None): lambda log_r: log_r,  # gathered and compared in log space
    ("k1", "forward"): lambda log_r: -log_r,
    ("k1", "reverse"): lambda log_r: log_r,
    ("k2", None): lambda log_r: log_r.square().mul_(0.5),
    ("k3", "forward"): k3,
    ("k3", "reverse"): lambda log_r: k3(-log_r),
    ("k3", "max"): lambda log_r: k3(log_r.abs()),  # e^x − 1 − x is larger on the positive side
    ("abs_log_ratio", None): lambda log_r: log_r.abs(),
    ("ratio_deviation", None): lambda log_r: log_r.expm1().abs_(),
    ("mult_prob_error", None): lambda log_r: log_r.abs().exp_(),
    ("second_moment", None): lambda log_r: log_r.square(),
}

FROM_PROBABILITIES: dict[tuple[str, str | None], Callable[[Tensor, Tensor], Tensor]] = {
    ("binary_kl", "forward"): lambda p, q: binary_kl(q, p),
    ("binary_kl", "reverse"): binary_kl,
    ("binary_kl", "max"): lambda p, q: torch.maximum(binary_kl(p, q), binary_kl(q, p)),
    ("tv", None): lambda p, q: (p - q).abs_(),
    ("prob_diff", None): lambda p, q: p - q,
}
