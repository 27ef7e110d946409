"""miles: from rewards to advantages, by slime's rules."""

from __future__ import annotations

from trimtab.dialects.framework import Given
from trimtab.dialects.parts import AdvantagePart, refuse
from trimtab.dialects.slime import advantage as slime


def advantage_of(given: Given) -> AdvantagePart:
    """What slime's rules say. A teacher alone is an estimator of 0.0.2; one beside rewards came later, and was not read."""
    refuse(given["use_opd"], "miles --use-opd", "a teacher moves the advantages in a way that was not read")
    return slime.advantage_of(given)
