"""When two implementations of one formula agree: digit for digit, however small the number."""

from __future__ import annotations

import torch
from torch import Tensor

RELATIVE = 1e-5
TINY = 1e-12
"""What float32 leaves of a number that is 0; a weight of 2.2e-6 is not one of 2.8e-6."""


def same_products(ours: Tensor, theirs: Tensor) -> None:
    """Weights, ratios and gradients: products of single numbers, so every digit of each counts."""
    torch.testing.assert_close(ours, theirs, rtol=RELATIVE, atol=TINY)


def same_differences(ours: Tensor, theirs: Tensor, scale: float | None = None) -> None:
    """Advantages and sums: what is left of numbers of this scale (the largest here), with their rounding."""
    largest = float(theirs.abs().max()) if theirs.numel() else 0.0
    torch.testing.assert_close(ours, theirs, rtol=RELATIVE, atol=1e-6 * (largest if scale is None else scale) + TINY)
