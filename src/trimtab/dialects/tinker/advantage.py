"""The cookbook: rewards less the mean of their group."""

from __future__ import annotations

from trimtab.config.advantages import Grpo
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import ALL, AdvantagePart, refuse


def advantage_of(given: Given) -> AdvantagePart:
    """The group's mean subtracted, never divided by a deviation."""
    refuse(
        given["kl_penalty_coef"],
        "Tinker kl_penalty_coef",
        "each token's advantage moves by the mean of log sampler − log reference over the batch less its own. Set it to 0, or pay the KL "
        "in your rewards",
    )
    return AdvantagePart(advantage=Grpo(std=False, **ALL))
