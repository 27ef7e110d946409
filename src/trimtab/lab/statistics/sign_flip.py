"""The exact test of paired differences: under no effect each could as well have had the other sign."""

from __future__ import annotations

import numpy as np

from trimtab.lab.statistics.interval import Numbers

EXACT = 16
"""Up to so many differences all 2ⁿ choices of signs are gone through; beyond, `DRAWS` of them and the one observed."""
DRAWS = 99_999
_SLACK = 1e-12


def sign_flip_p(differences: Numbers, *, seed: int = 0) -> float:
    """The share of choices of signs whose mean is at least the one observed: one-sided, for a mean above 0.

    For a mean below 0, give it the differences with their signs turned. No p is under 2⁻ⁿ: seven pairs or fewer decide
    nothing at 0.5 %.
    """
    # 1, 2, −1: sum 2. Of the eight sums ±1 ±2 ±1, which are 4, 2, 2, 0, 0, −2, −2 and −4, three are at least 2: p = 3/8.
    sizes = np.abs(np.asarray(differences, dtype=np.float64))
    total = float(np.sum(differences))
    slack = _SLACK * max(1.0, float(sizes.sum()))
    if len(sizes) <= EXACT:
        choices = np.arange(2 ** len(sizes))[:, None] >> np.arange(len(sizes)) & 1
        sums = (1 - 2.0 * choices) @ sizes
        return float((sums >= total - slack).mean())
    drawn = np.random.default_rng(seed).integers(0, 2, (DRAWS, len(sizes)))
    sums = (1 - 2.0 * drawn) @ sizes
    return float(((sums >= total - slack).sum() + 1) / (DRAWS + 1))
