"""What a correction worked out on its way, and the sums its metrics are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.batch import Batch
from trimtab.core.cached import cached
from trimtab.core.gate import GateResult
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import number_of, saturating_cast, squares_of, sum_of
from trimtab.core.weight import Weighing

MOST = 1e38
"""Weights, perplexities and what gates measured are reported up to here: a far number takes no mean or deviation with it."""


@dataclass(frozen=True, eq=False)
class Decisions:
    """What `correct` decided, with everything it worked out on its way, for the metrics to read."""

    rule: Correction
    batch: Batch
    results: tuple[GateResult, ...]
    weighing: Weighing | None
    kept: Float[Tensor, "*tokens"]
    weight: Float[Tensor, "*tokens"]

    @cached
    def number(self) -> Float[Tensor, ""]:
        """How many valid tokens this rank holds."""
        return number_of(self.batch.valid)

    @property
    def centered(self) -> Float[Tensor, "*tokens"] | None:
        """1 on the tokens whose gradient is centered: what a token by itself decides takes none out. None without centering."""
        if self.rule.centering is None:
            return None
        found = self.batch.valid
        for each in self.results:
            if each.gate.action in ("reject", "zero") and not each.gate.is_of_token:
                found = found * each.passes
        return found

    @property
    def ranks(self) -> Ranks:
        """The ranks that hold the batch."""
        return self.batch.layout.ranks

    @property
    def log_r(self) -> Float[Tensor, "*tokens"]:
        """The log-ratio of the rule's own pair."""
        return self.batch.log_r[self.rule.pair]

    @cached
    def total_log_r(self) -> Float[Tensor, " rows"]:
        """Its sum over each sequence, in float64."""
        return self.batch.sums(self.batch.layout, self.log_r)


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
        found = {"mean": self.mean, "std": self.variance.sqrt(), "min": self.least, "max": self.greatest}
        return with_prefix(prefix, {name: as_metric(value) for name, value in found.items()})


def describe(
    held: Tensor, present: Tensor, number: Tensor, ranks: Ranks, share: float = 1.0, least: float = -math.inf
) -> Description:
    """Mean, variance, least and greatest of the present values; `held` is 0 where they are not.

    Two passes, so that nothing cancels. Where no value is below `least` >= 0, the absent zeros cannot be the greatest. Values of
    either sign lie within ±MOST, so that none is farther from the mean than float32 reaches.
    """
    scratch = torch.empty_like(held)  # for two values per token: fresh memory costs more than the arithmetic done in it
    number, total = over_ranks(ranks, number * share, sum_of(held) * share)
    some = number.clamp(min=1e-300)
    mean = total / some
    centre = mean.to(held.dtype)  # the mean but for a rounding
    (second,) = over_ranks(ranks, squares_of(torch.addcmul(held, present, -centre, out=scratch)) * share)
    variance = (second / some - (mean - centre).square()).clamp(min=0.0)
    high, low = ranks.greatest(_ends(held, present, scratch, least)).double().unbind()
    return Description(
        number, mean, variance, torch.where(number > 0, 0.0 - low, 0.0), torch.where(number > 0, high, 0.0)
    )


def _ends(held: Tensor, present: Tensor, scratch: Tensor, least: float) -> Tensor:
    """The greatest present value and minus the least; `scratch` is written over."""
    if not held.numel():
        return held.new_full((2,), -torch.inf)
    outside = torch.sub(present, 1.0, out=scratch).mul_(torch.finfo(held.dtype).max)  # 0 or the lowest number
    high = held.amax() if least >= 0 else (held + outside).amax()
    return torch.stack([high, outside.sub_(held).amax()])


def with_prefix(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same values under longer names."""
    return {f"{prefix}{name}": value for name, value in values.items()}
