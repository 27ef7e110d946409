"""The temperature that tokens were drawn with and the one that behavior was reported for, by a model: no gap shows the first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.audit.gap import Floats
from trimtab.audit.statistics import mean_with_error
from trimtab.records.saved import SavedBatch

GRID = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.35, 1.6)
ENOUGH = 64
"""Sequences that are looked at."""


@dataclass(frozen=True)
class DrawnTemperature:
    """Temperatures by the model that scored."""

    drawn: float
    """Under which the tokens are likeliest."""
    reported: float
    """Under which the model's log-probs are nearest to behavior."""
    z: float
    """Standard errors between the likelihoods of the two."""

    @property
    def is_apart(self) -> bool:
        """Whether tokens were drawn with another temperature than behavior says, beyond chance and beyond the grid."""
        return self.z > 5 and abs(np.log(self.drawn / self.reported)) > 0.05


def drawn_temperature(batch: SavedBatch, log_probs: NDArray[np.float32]) -> DrawnTemperature | None:
    """The two temperatures, from log-probs `[GRID, tokens]` of the batch's tokens; None where there is nothing to go by."""
    if batch.behavior is None or not batch.trained.any():
        return None
    scores = log_probs.astype(np.float64)
    used = batch.trained & np.isfinite(batch.behavior) & np.isfinite(scores).all(0)
    if used.sum() < 100:
        return None
    scores, behavior, sequence = scores[:, used], batch.behavior[used].astype(np.float64), batch.sequence[used]
    reported = int(np.argmin(np.median(np.abs(scores - behavior), axis=1)))
    likelihood = scores.mean(1)
    best = int(np.argmax(likelihood))
    gain, error = mean_with_error(scores[best] - scores[reported], sequence)
    return DrawnTemperature(_between(likelihood, best), GRID[reported], gain / max(error, 1e-12))


def _between(likelihood: Floats, best: int) -> float:
    """The top of the parabola through the best of the grid and its neighbours, over log T."""
    if best in (0, len(GRID) - 1):
        return GRID[best]
    x = np.log(np.array(GRID[best - 1 : best + 2]))
    curve = np.polyfit(x, likelihood[best - 1 : best + 2], 2)
    return float(np.exp(np.clip(-curve[1] / (2 * curve[0]), x[0], x[2]))) if curve[0] < 0 else GRID[best]
