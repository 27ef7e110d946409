"""How many seeds a question would take."""

from __future__ import annotations

import math
from statistics import NormalDist

POWER = 0.8
"""Chance of deciding with so many seeds, if the differences go on as they began."""
MOST = 10_000


def seeds_needed(distance: float, spread: float, level: float, power: float = POWER) -> int | None:
    """Seeds with which a mean at `distance` from a bound would be told from it, the differences having deviation `spread`.

    Guenther's form of the t-test's size: ((z_level + z_power) · spread / distance)² + z_level² / 2, rounded up; two-sided. None
    where that is above `MOST`, as where there is no distance.
    """
    # level 0.95, power 0.8, distance = spread: (1.96 + 0.842)² + 1.92 = 9.77, so 10 seeds.
    normal = NormalDist()
    z = normal.inv_cdf((1 + level) / 2)
    if distance <= 0:
        return None
    found = ((z + normal.inv_cdf(power)) * spread / distance) ** 2 + z**2 / 2
    return None if found > MOST else max(2, math.ceil(found))
