"""How far two policies lie apart, as verl and ms-swift log it: the same names, some of them other numbers."""

from __future__ import annotations

import torch

from trimtab.logged.views import CorrectionView, Table, greatest, least, mean

LIMIT = 20.0

DRIFT: Table[CorrectionView] = {
    "training_ppl": lambda x: x.surprise(0).exp().mean(),
    "training_log_ppl": lambda x: x.surprise(0).mean(),
    "rollout_ppl": lambda x: x.surprise(1).exp().mean(),
    "rollout_log_ppl": lambda x: x.surprise(1).mean(),
    "kl": lambda x: -x.mean(x.log_r),
    "log_ppl_diff": lambda x: -x.by_row(x.log_r).mean(),
    "log_ppl_abs_diff": lambda x: x.by_row(x.log_r).abs().mean(),
    "log_ppl_diff_max": lambda x: -least(x.by_row(x.log_r), x.every),
    "log_ppl_diff_min": lambda x: -greatest(x.by_row(x.log_r), x.every),
    "ppl_ratio": lambda x: (-x.by_row(x.log_r)).exp().mean(),
    "chi2_token": lambda x: x.mean((2 * x.log_r_within(LIMIT)).expm1()),
}
"""Means over rows count rows without tokens, whose perplexity is 1."""


def ess(weight: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
    """The effective share of the tokens, 1 / mean((w / mean w)²)."""
    level = weight / (mean(weight, valid) + 1e-8)
    return 1.0 / mean(level.square(), valid).clamp(min=1e-10)
