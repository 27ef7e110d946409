"""The plain policy gradient through ρ, said as a clip that never acts: most frameworks have the second only."""

from __future__ import annotations

from dataclasses import replace

from trimtab.config.losses import Clip, ImportancePg
from trimtab.dialects.equivalence import OPEN
from trimtab.dialects.reading import Reading


def with_idle_clip(reading: Reading) -> Reading:
    """The same with max(−Aρ, −A·clip(ρ, 0, ∞)) for −Aρ; itself where it has another loss."""
    if not isinstance(reading.loss, ImportancePg):
        return reading
    return replace(reading, loss=Clip(low=1.0, high=OPEN, log_limit=reading.loss.log_limit))
