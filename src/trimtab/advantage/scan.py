"""Where the trained tokens of a sequence end."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.core.layout import Layout
from trimtab.core.ratio import indicator


def last_trained(layout: Layout, trained: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """1 at the last trained token of each sequence."""
    place, last = _places(layout, trained)
    return indicator(place == last, trained.dtype)


def after_last(layout: Layout, trained: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """1 at the slots after the last trained token of each sequence."""
    place, last = _places(layout, trained)
    return indicator(place > last, trained.dtype)


def _places(layout: Layout, trained: Tensor) -> tuple[Tensor, Tensor]:
    """Each slot's place from 1, and that of its sequence's last trained token (0: none); exact beyond float32's 2^24."""
    place = torch.arange(1, trained.numel() + 1, dtype=torch.float64, device=trained.device).view(trained.shape)
    return place, layout.spread(layout.peak(place * trained).clamp(min=0.0))
