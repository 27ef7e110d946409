"""What a correction worked out on its way, and the sums its metrics are made of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.batch import Batch, Scope
from trimtab.core.gate import Verdict
from trimtab.core.ranks import Ranks
from trimtab.core.weight import Weighing


@dataclass(frozen=True, eq=False)
class Trace:
    """Everything `correct` worked out on its way, for the metrics to read."""

    rule: Correction
    batch: Batch
    verdicts: tuple[Verdict, ...]
    weighing: Weighing | None
    kept: Scope
    stays: Float[Tensor, "*tokens"]  # `kept` over the tokens
    weight: Float[Tensor, "*tokens"]

    def count(self, tokens: Tensor, rows: Tensor) -> Float[Tensor, ""]:
        """How many of the indicated tokens this rank holds; `rows`, their number per sequence, spares a pass over them."""
        return sum_of(rows if self.ranks.context is None else tokens)

    @property
    def number(self) -> Float[Tensor, ""]:
        """How many valid tokens this rank holds."""
        return self.count(self.batch.valid, self.batch.lengths)

    @property
    def ranks(self) -> Ranks:
        """The ranks that hold the batch."""
        return self.batch.layout.ranks

    @property
    def log_r(self) -> Float[Tensor, "*tokens"]:
        """The log-ratio of the rule's own pair."""
        return self.batch.log_r[self.rule.pair]


def sum_of(value: Tensor) -> Tensor:
    """The sum of a tensor, to be added up further in float64."""
    return value.sum().double()


def over_ranks(ranks: Ranks, *sums: Tensor) -> tuple[Tensor, ...]:
    """Local sums as sums over the whole batch, in one collective."""
    if ranks.whole is None:
        return sums
    return tuple(ranks.summed(torch.stack([each.double() for each in sums])).unbind())


def quotient(total: Tensor, number: Tensor) -> Tensor:
    """A mean that is 0 where there is nothing to average."""
    return (total / number.clamp(min=torch.finfo(torch.float64).tiny)).float()


def sum_of_rows(trace: Trace, rows: Tensor) -> Tensor:
    """This rank's part of a sum over sequences."""
    return sum_of(rows) * trace.ranks.row_share


def occupied(rows: Tensor) -> Tensor:
    """1 for units with tokens."""
    return rows.clamp(max=1.0)


def described(
    held: Tensor,
    present: Tensor,
    number: Tensor,
    ranks: Ranks,
    share: float = 1.0,
    least: float = -math.inf,
    room: Tensor | None = None,
) -> dict[str, Tensor]:
    """Mean, biased standard deviation, least and greatest of the present values; `held` is 0 where they are not.

    Two passes, so that nothing cancels. Where no value is below `least` >= 0, the absent zeros cannot be the greatest.
    """
    room = torch.empty_like(held) if room is None else room
    total = sum_of(held)
    centre = quotient(total, number)
    apart = torch.addcmul(
        held, present, -centre.to(held.dtype), out=room
    ).flatten()  # about the mean as float32 has it …
    second = (
        torch.dot(apart, apart).double() + 2 * centre.double() * total - number * centre.double().square()
    )  # … and back
    number, total, second = over_ranks(ranks, number * share, total * share, second * share)
    mean = total / number.clamp(min=1e-300)
    high, low = ranks.greatest(_ends(held, present, room, least)).unbind()
    some = number > 0
    return {
        "mean": mean.float(),
        "std": (second / number.clamp(min=1e-300) - mean.square()).clamp(min=0.0).sqrt().float(),
        "min": torch.where(some, 0.0 - low.float(), 0.0),
        "max": torch.where(some, high.float(), 0.0),
    }


def _ends(held: Tensor, present: Tensor, room: Tensor, least: float) -> Tensor:
    """The greatest present value and minus the least; `room` is written over."""
    if not held.numel():
        return held.new_full((2,), -torch.inf)
    outside = torch.sub(present, 1.0, out=room).mul_(torch.finfo(held.dtype).max)  # 0 or the lowest number
    high = held.amax() if least >= 0 else (held + outside).amax()
    return torch.stack([high, outside.sub_(held).amax()])


def prefixed(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same values under longer names."""
    return {f"{prefix}{name}": value for name, value in values.items()}
