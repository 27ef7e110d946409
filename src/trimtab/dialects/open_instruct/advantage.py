"""open-instruct: the group baseline."""

from __future__ import annotations

from trimtab.config.advantages import Estimator, Grpo, MaxRl
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import AdvantagePart


def advantage_of(given: Given) -> AdvantagePart:
    """The group's mean subtracted and, for `standard`, divided by its biased deviation."""
    kinds: dict[str, Estimator] = {
        "centered": Grpo(std=False, baseline="all"),
        "standard": Grpo(unbiased=False, eps=1e-8, baseline="all"),
        "max_rl": MaxRl(eps=1e-8, baseline="all"),
    }
    return AdvantagePart(advantage=kinds[given["advantage_normalization_type"]])
