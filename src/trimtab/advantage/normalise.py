"""Means and deviations over a batch or its groups, in float64, over every rank; and values normalised by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.advantage.inputs import check_given, check_group_ids, check_not_empty, check_tokens, row_count
from trimtab.config.advantages import Level, Normalise, Singleton
from trimtab.config.base import of_kind
from trimtab.core.inputs import layout_of, takes_arrays
from trimtab.core.layout import Layout
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import indicator, is_finite, working_type, zero_outside

CONSTANT = 1e-24
"""A variance below this share of the mean square is rounding: the values are equal."""

DIVISORS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "std": lambda variance, eps: variance.sqrt() + eps,
    "variance": lambda variance, eps: (variance + eps).sqrt(),
    "floor": lambda variance, eps: variance.clamp(min=eps).sqrt(),
}


@dataclass(frozen=True, eq=False)
class Groups:
    """Each row's group as an index below `count`; the same index on every rank."""

    index: Int[Tensor, " rows"]
    count: int
    ranks: Ranks

    def total(self, value: Float[Tensor, "rows *columns"]) -> Float[Tensor, "groups *columns"]:
        """The sum over each group's rows, on whichever ranks they sit, in float64."""
        sums = value.new_zeros((self.count, *value.shape[1:]), dtype=torch.float64)
        return self.ranks.total(sums.index_add_(0, self.index, value.double()))

    def spread(self, group: Float[Tensor, "groups *columns"]) -> Float[Tensor, "rows *columns"]:
        """One value per group, for each of its rows."""
        return group[self.index]


def one_group(rows: int, device: torch.device, ranks: Ranks) -> Groups:
    """The whole batch as a group."""
    return Groups(torch.zeros(rows, dtype=torch.int64, device=device), 1, ranks)


def groups_of(ids: Int[Tensor, " rows"], count: int | None, ranks: Ranks) -> Groups:
    """Groups from ids. With a `count` the ids are indices already; without, they are gathered and numbered (a host sync)."""
    if count is not None:
        return Groups(ids.long(), count, ranks)
    (everyone,), _ = ranks.gather(ids.long())
    known = torch.unique(everyone)
    return Groups(torch.searchsorted(known, ids.long()), len(known), ranks)


@dataclass(frozen=True, eq=False)
class Votes:
    """Values that vote by weight: one per row, or (with a layout) one per token. Finite wherever they stand."""

    value: Float[Tensor, "*units"]
    weight: Float[Tensor, "*units"]
    levels: Mapping[Level, Groups]
    layout: Layout | None = None
    rounding: Float[Tensor, "*units"] | None = None
    """How far off each value may be by the arithmetic it comes from; None: by its own last digits only."""

    @property
    def noise(self) -> Float[Tensor, "*units"]:
        """The square of a difference that says nothing: one of rounding."""
        own = CONSTANT * self.value.square()
        return own if self.rounding is None else own + self.rounding.square()

    def total(self, level: Level, *terms: Tensor) -> tuple[Tensor, ...]:
        """Sums over each row's level, as seen from the row; one collective for all terms."""
        groups = self.levels[level]
        rows = torch.stack([term if self.layout is None else self.layout.total(term) for term in terms], -1)
        return groups.spread(groups.total(rows)).unbind(-1)

    def per_unit(self, row: Tensor) -> Tensor:
        """One value per row, over its units."""
        return row if self.layout is None else self.layout.spread(row)


@dataclass(frozen=True, eq=False)
class Moments:
    """What each row's level votes for; zeros where nobody does."""

    number: Float[Tensor, " rows"]
    mean: Float[Tensor, " rows"]
    squares: Float[Tensor, " rows"]  # summed, about the mean
    varies: Float[Tensor, " rows"]

    def variance(self, unbiased: bool) -> Float[Tensor, " rows"]:
        """The variance, 0 for a single vote."""
        return self.squares / (self.number - (1.0 if unbiased else 0.0)).clamp(min=1.0)


def moments(sample: Votes, level: Level) -> Moments:
    """Two passes, so that a large mean costs a small spread no digits."""
    weight = sample.weight
    number, total, noise = sample.total(level, weight, weight * sample.value, weight * sample.noise)
    mean = total / number.clamp(min=1.0)
    (squares,) = sample.total(level, (sample.value - sample.per_unit(mean)).square_().mul_(weight))
    return Moments(number, mean, squares, (squares > noise).double())


def standardise(norm: Normalise, sample: Votes) -> Float[Tensor, "*units"]:
    """The value less a mean, over a deviation, for every unit, voting or not."""
    found = {level: moments(sample, level) for level in dict.fromkeys((norm.mean, norm.std)) if level is not None}
    value = sample.value
    if norm.mean is not None:
        value = centre(sample, found[norm.mean], norm.singleton, leave_one_out=norm.leave_one_out)
    if norm.std is None:
        return value
    spread = found[norm.std]
    variance, varies = spread.variance(norm.unbiased), spread.varies
    if norm.about == "subtracted":
        squares, noise = sample.total(norm.std, sample.weight * value.square(), sample.weight * sample.noise)
        variance = squares / (spread.number - (1.0 if norm.unbiased else 0.0)).clamp(min=1.0)
        varies = (squares > noise).double()
    spread = replace(spread, varies=varies)
    return value / sample.per_unit(divisor(spread, variance, norm.eps, norm.eps_at, norm.singleton))


def divisor(
    divisors: Moments, variance: Tensor, eps: float, eps_at: str, singleton: Singleton
) -> Float[Tensor, " rows"]:
    """What a variance divides by; 1 where nothing varies."""
    varies = divisors.varies
    if singleton == "raw":
        variance = torch.where(divisors.number == 1, 1.0, variance)
        varies = torch.where(divisors.number == 1, 1.0, varies)
    return torch.where(varies > 0, DIVISORS[eps_at](variance, eps), 1.0)


def centre(
    sample: Votes, found: Moments, singleton: Singleton, *, leave_one_out: bool = False
) -> Float[Tensor, "*units"]:
    """The value less the mean of its level, or of the others there. Votes that all agree give an exact 0."""
    number = found.number
    # x − (n·mean − x)/(n − 1) = (x − mean)·n/(n − 1); whoever does not vote is no part of the mean anyway
    others = number / (number - 1.0).clamp(min=1.0) if leave_one_out else torch.ones_like(number)
    factor = sample.weight.clamp(max=1.0).mul_(sample.per_unit(found.varies * others - 1.0)).add_(1.0)
    value = (sample.value - sample.per_unit(found.mean)).mul_(factor)
    return torch.where(sample.per_unit(number == 1), sample.value, value) if singleton == "raw" else value


@takes_arrays()
@torch.no_grad()
def normalised(
    norm: Normalise,
    values: Tensor,
    *,
    mask: Tensor | None = None,
    kept: Tensor | None = None,
    group: Tensor | None = None,
    groups: int | None = None,
    cu_seqlens: Int[Tensor, " bounds"] | None = None,
    process_group: ProcessGroup | None = None,
) -> Tensor:
    """Values, one per sequence `[rows]` or per token (padded, or packed with `cu_seqlens`), normalised; 0 outside `mask`.

    `mask` and `kept` have the shape of the values: who is normalised, and who votes (left out: all of them). A NaN or
    infinite value neither votes nor leaves a trace. `group` is one id per sequence, `groups` their number if the ids are
    indices already.
    """
    norm, ranks = (
        of_kind(Normalise, norm, "normalised needs a Normalise", "trimtab.Normalise()"),
        Ranks(batch=process_group),
    )
    mask = torch.ones_like(values, dtype=torch.bool) if mask is None else mask
    check_tokens("mask", mask, values)
    check_tokens("kept", kept, values)
    layout = None if values.ndim == 1 and cu_seqlens is None else layout_of(mask, cu_seqlens, ranks)
    rows = len(values) if layout is None else row_count(layout, mask)
    check_not_empty(rows, process_group)
    check_group_ids(group, groups, rows, values.device)
    if "group" in (norm.mean, norm.std):
        check_given("Normalise over groups", "group", group)
    counted = indicator(mask, torch.float64) * is_finite(values.double())
    votes = counted if kept is None else counted * indicator(kept, torch.float64)
    sample = Votes(zero_outside(values, counted), votes, levels(rows, group, groups, values.device, ranks), layout)
    return zero_outside(standardise(norm, sample), counted).to(working_type(values))


def levels(
    rows: int, group: Tensor | None, count: int | None, device: torch.device, ranks: Ranks
) -> dict[Level, Groups]:
    """The batch as one group, and its groups if they were named."""
    found: dict[Level, Groups] = {"batch": one_group(rows, device, ranks)}
    if group is not None:
        found["group"] = groups_of(group, count, ranks)
    return found
