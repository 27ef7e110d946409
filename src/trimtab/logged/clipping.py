"""Where TRL and ms-swift count a token as clipped: by the ratio and the sign of the advantage."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.config.losses import Cispo, Clip, Fipo, Gspo, Luspo
from trimtab.core.ratio import above, below
from trimtab.logged.views import LossView

Clipping = Clip | Gspo | Luspo | Fipo


def clips_low(x: LossView) -> Tensor:
    """1 where the ratio is below its bound and the advantage negative."""
    assert isinstance(x.loss, Clipping)
    return below(x.rho, 1.0 - x.loss.low) * below(x.terms.advantages, 0.0)


def clips_high(x: LossView) -> Tensor:
    """1 where the ratio is above its bound and the advantage positive."""
    assert isinstance(x.loss, Clipping)
    cap = None if isinstance(x.loss, Luspo) else x.loss.ratio_cap
    rho = x.rho if cap is None else x.rho.clamp(max=cap)
    return above(rho, 1.0 + x.loss.high) * above(x.terms.advantages, 0.0)


def clips(x: LossView) -> Tensor:
    """1 where either holds."""
    return torch.maximum(clips_low(x), clips_high(x))


def cispo_clips(x: LossView) -> Tensor:
    """1 where CISPO holds the ratio down and the advantage is positive."""
    assert isinstance(x.loss, Cispo)
    beyond = above(x.rho, torch.inf if x.loss.upper is None else x.loss.upper)
    return beyond * above(x.terms.advantages, 0.0)
