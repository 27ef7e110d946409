"""The two divergences that losses, metrics and logged names ask for by themselves, on tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.config.divergences import DIVERGENCES

_, _K3 = DIVERGENCES["k3"].forms["forward"]
_, _BINARY_KL = DIVERGENCES["binary_kl"].forms["reverse"]


def k3(log_r: Tensor) -> Tensor:
    """r − 1 − log r, never negative."""
    return _K3(torch, log_r, None, None)


def binary_kl(p: Tensor, q: Tensor) -> Tensor:
    """KL of `this token or not` under p against q."""
    return _BINARY_KL(torch, None, p, q)
