"""What metrics are made of: sums over all ranks, which sum over which other one is a metric, and descriptions of values.

Every number is finite: log-ratios are held within ±LIMIT before they are exponentiated, weights, perplexities and what gates measured
within ±MOST, and sums run in float64. One token cannot make a mean infinite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.core.ranks import Ranks
from trimtab.core.ratio import (
    saturating_cast,
    squares_of,
    sum_of,
)

MOST = 1e38
"""Weights, perplexities and what gates measured are reported up to here: a far number takes no mean or deviation with it."""
MEANS: dict[str, tuple[str, str]] = {
    "missing_fraction": ("missing", "masked"),
    "kept_fraction": ("kept", "tokens"),
    "kept_sequence_fraction": ("kept_rows", "rows"),
    "positive_fraction": ("doubtful", "tokens"),
    "partial_fraction": ("partial", "tokens"),
    "drift/kl": ("minus_log_r", "tokens"),
    "drift/kl_reverse": ("r_log_r", "tokens"),
    "drift/k3": ("k3", "tokens"),
    "drift/k3_reverse": ("k3_reverse", "tokens"),
    "drift/chi2_token": ("chi2_token", "tokens"),
    "drift/chi2_sequence": ("chi2_sequence", "rows"),
    "drift/abs_log_r": ("abs_log_r", "tokens"),
    "drift/prob_diff": ("prob_diff", "tokens"),
    "perplexity/behavior": ("perplexity_behavior", "rows"),
    "perplexity/target": ("perplexity_target", "rows"),
    "perplexity/ratio": ("perplexity_ratio", "rows"),
    "perplexity/log_diff": ("log_diff", "rows"),
    "perplexity/log_diff_abs": ("log_diff_abs", "rows"),
}
"""Metrics of a correction that are a sum over a sum, in the plain form and in the fast one. ℓ is the log-ratio, r the ratio:
`r_log_r` is Σ r·ℓ, `chi2_token` Σ(r² − 1)."""
TOUCHED = {"weight/touched_high": ("above", "weighed"), "weight/touched_low": ("below", "weighed")}
"""Of the weight: tokens whose raw ratio lies beyond a bound, each side apart."""
OF_GATE = {
    "rejected_tokens": ("lost", "tokens"),
    "rejected_sequences": ("lost_rows", "rows"),
    "high_tokens": ("above", "tokens"),
    "low_tokens": ("below", "tokens"),
}
"""Of a gate: what it turned away, and on which side."""
GAPS = {"advantage/missing_fraction": ("unvalued", "tokens")}
"""Of a batch: how much of what is trained came without a usable advantage."""
SELECTION = {
    "selection/kept_given_positive": ("positive_acting", "positive"),
    "selection/kept_given_negative": ("negative_acting", "negative"),
    "selection/net_advantage": ("acting_advantage", "acting"),
    "selection/mean_advantage": ("advantage", "tokens"),
}
"""Of a correction where there are advantages: what acts has a weight above 0."""


def means(table: Mapping[str, tuple[str, str]], sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The rows of a table that these sums say."""
    return {name: quotient(sums[part], sums[number]) for name, (part, number) in table.items() if part in sums}


def total_sums(ranks: Ranks, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Local sums by name as sums over the whole batch, in one collective."""
    return dict(zip(sums, over_ranks(ranks, *sums.values()), strict=True))


def over_ranks(ranks: Ranks, *sums: Tensor) -> tuple[Tensor, ...]:
    """Local sums as sums over the whole batch, in one collective."""
    if ranks.whole is None:
        return sums
    return tuple(ranks.total(torch.stack([each.double() for each in sums])).unbind())


def quotient(total: Tensor, number: Tensor) -> Tensor:
    """A mean that is 0 where there is nothing to average."""
    return as_metric(total / number.clamp(min=torch.finfo(torch.float64).tiny))


def as_metric(value: Tensor) -> Tensor:
    """A number as it is reported: float32, and finite."""
    return saturating_cast(value, torch.float32)


def sum_of_rows(ranks: Ranks, rows: Tensor) -> Tensor:
    """This rank's part of a sum over sequences."""
    return sum_of(rows) * ranks.row_share


def has_tokens(rows: Tensor) -> Tensor:
    """1 for units with tokens."""
    return rows.clamp(max=1.0)


@dataclass(frozen=True, eq=False)
class Description:
    """What can be said of some values over all ranks, in float64; 0 where there are none."""

    number: Float[Tensor, ""]
    mean: Float[Tensor, ""]
    variance: Float[Tensor, ""]  # biased
    least: Float[Tensor, ""]
    greatest: Float[Tensor, ""]

    def as_metrics(self, prefix: str) -> dict[str, Tensor]:
        """As metrics."""
        parts = {"mean": self.mean, "std": self.variance.sqrt(), "min": self.least, "max": self.greatest}
        return with_prefix(prefix, {name: as_metric(value) for name, value in parts.items()})


def describe(
    values: Tensor, present: Tensor, number: Tensor, ranks: Ranks, share: float = 1.0, least: float = -math.inf
) -> Description:
    """Mean, variance, least and greatest of the present values; `values` are 0 elsewhere.

    Two passes, so that nothing cancels. Where no value is below `least` >= 0, the absent zeros cannot be the greatest. Values of
    either sign lie within ±MOST, so that none is farther from the mean than float32 reaches.
    """
    scratch = torch.empty_like(
        values
    )  # for two values per token: fresh memory costs more than the arithmetic done in it
    number, total = over_ranks(ranks, number * share, sum_of(values) * share)
    some = number.clamp(min=1e-300)
    mean = total / some
    centre = mean.to(values.dtype)  # the mean but for a rounding
    (second,) = over_ranks(ranks, squares_of(torch.addcmul(values, present, -centre, out=scratch)) * share)
    variance = (second / some - (mean - centre).square()).clamp(min=0.0)
    high, low = ranks.greatest(_ends(values, present, scratch, least)).double().unbind()
    return Description(
        number, mean, variance, torch.where(number > 0, 0.0 - low, 0.0), torch.where(number > 0, high, 0.0)
    )


def _ends(values: Tensor, present: Tensor, scratch: Tensor, least: float) -> Tensor:
    """The greatest present value and minus the least; `scratch` is written over."""
    if not values.numel():
        return values.new_full((2,), -torch.inf)
    outside = torch.sub(present, 1.0, out=scratch).mul_(torch.finfo(values.dtype).max)  # 0 or the lowest number
    high = values.amax() if least >= 0 else (values + outside).amax()
    return torch.stack([high, outside.sub_(values).amax()])


def with_prefix(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same values under longer names."""
    return {f"{prefix}{name}": value for name, value in values.items()}


LIMIT = 20.0
"""Log-ratios are held within this before they are exponentiated."""
POINTS = {"p01": 0.01, "p50": 0.5, "p99": 0.99}
