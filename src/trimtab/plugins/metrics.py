"""Which metrics of a step reach a framework's logger, under which names, and how they leave the device: once."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trimtab.config.plan import Plan
from trimtab.core.metrics import Combination, combination

PREFIX = "trimtab/"
FEW = frozenset(
    [
        "kept_fraction",
        "kept_sequence_fraction",
        "missing_fraction",
        "all_rejected",
        "drift/kl",
        "drift/k3",
        "drift/abs_log_r_max",
        "ratio/max",
        "ratio/p99",
        "weight/mean",
        "weight/max",
        "weight/ess",
        "policy/clip_high",
        "policy/clip_low",
        "policy/k1",
        "policy/ratio_max",
        "policy/kl",
        "policy/entropy",
        "selection/net_advantage",
        "nonvoting_rows",
        "silent_groups",
        "zero_variance_groups",
    ]
)
"""With `metrics: few`, and of each gate what it rejected."""
EVERY_WAY: frozenset[Combination] = frozenset({"mean", "max", "min", "sum"})


def logged_metrics(
    plan: Plan, metrics: Mapping[str, Tensor], ways: frozenset[Combination] = EVERY_WAY, prefix: str = PREFIX
) -> dict[str, Tensor]:
    """The metrics a plan asks for that the framework's logger combines as it should: an average of maxima is left out."""
    return {
        f"{prefix}{name}": metrics[name]
        for name in metrics
        if (plan.metrics == "all" or is_one_of_few(name)) and combination(name) in ways
    }


def is_one_of_few(name: str) -> bool:
    """Whether a metric is logged unless all are asked for."""
    return name in FEW or (name.startswith("gate/") and name.endswith("/rejected_tokens"))


def as_floats(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    """All of them on the host in one transfer: however many there are, the device is waited for once."""
    if not metrics:
        return {}
    stacked = torch.stack([value.detach().float() for value in metrics.values()])
    return dict(zip(metrics, stacked.tolist(), strict=True))
