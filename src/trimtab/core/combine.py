"""How a metric of several micro-batches or ranks becomes one: every trainer gathers in its own way, and an average of maxima is none.

Sums, least and greatest are exact for any split. A mean is that of the parts, each with one vote, as trainers take it: exact where
the parts hold as many tokens (or sequences) each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

Combination = Literal["mean", "max", "min", "sum"]

SUMS = frozenset(
    [
        "tokens",
        "sequences",
        "policy/loss",
        "rows",
        "nonvoting_rows",
        "failed_rows",
        "truncated_rows",
        "groups",
        "singleton_groups",
        "zero_variance_groups",
        "silent_groups",
    ]
)
"""Counts, and the loss: each micro-batch holds its share of it."""
ENDS: dict[str, Combination] = {"max": "max", "min": "min", "all_rejected": "min"}
"""By the last word of a name: `weight/max`, `policy/ratio_min`; a step is all rejected where every part is."""


def combination(name: str) -> Combination:
    """How the metric of that name is combined over parts of a step."""
    if name in SUMS:
        return "sum"
    word = name.rpartition("/")[2]
    return ENDS.get(word) or ENDS.get(word.rpartition("_")[2], "mean")


_WAYS = {"mean": torch.mean, "max": torch.amax, "min": torch.amin, "sum": torch.sum}


def combine(name: str, parts: Sequence[Float[Tensor, ""]]) -> Float[Tensor, ""]:
    """The metric of that name over all parts, of which there is at least one."""
    return _WAYS[combination(name)](torch.stack(list(parts)))
