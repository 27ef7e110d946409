"""Where sequences lie in a tensor of tokens: padded rows, packed runs, or turns inside either.

A layout knows three things and nothing else: the sum (`sums`, `total`) and the `peak` over each unit, and how to `spread` one
value per unit back over its tokens. Everything above it is written once. What runs along a sequence (sums and minima up to a token,
backward recurrences) stands here too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.cached import cached
from trimtab.core.ranks import ALONE, Ranks
from trimtab.core.ratio import row_sums


class Layout(ABC):
    """Units (sequences or turns) over a tensor of tokens."""

    ranks: Ranks

    @abstractmethod
    def sums(self, value: Tensor) -> Float[Tensor, " units"]:
        """The sum over each unit, in float64 whatever the values are in; 0 for a unit without tokens.

        Added up in float32, a long sequence loses digits, and not the same ones in every layout.
        """

    def total(self, value: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        """The sum over each unit, rounded once to the type of the values."""
        return self.sums(value).to(value.dtype)

    def count(self, counted: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        """How many tokens of each unit an indicator marks."""
        return self.total(counted)

    @abstractmethod
    def peak(self, value: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        """The maximum over each unit; −inf for a unit without tokens."""

    def dip(self, value: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        """The minimum over each unit; +inf for a unit without tokens."""
        return self.peak(-value).neg_()

    @abstractmethod
    def spread(self, unit: Tensor) -> Tensor:
        """One value per unit, laid over its tokens (broadcasts against them)."""


@dataclass(frozen=True)
class Padded(Layout):
    """One sequence per row of `[rows, width]`."""

    ranks: Ranks = ALONE

    def sums(self, value: Tensor) -> Float[Tensor, " units"]:
        return self.ranks.sum_of_parts(row_sums(value))

    def count(self, counted: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        return self.ranks.sum_of_parts(counted.sum(-1))  # added up in parts, ones are exact in float32 too

    def peak(self, value: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        empty = value.shape[-1] == 0
        return self.ranks.peak_of_parts(value.new_full(value.shape[:-1], -torch.inf) if empty else value.amax(-1))

    def dip(self, value: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        return (
            self.peak(-value).neg_() if value.shape[-1] == 0 else self.ranks.peak_of_parts(value.amin(-1).neg_()).neg_()
        )

    def spread(self, unit: Tensor) -> Tensor:
        return unit.unsqueeze(-1)


@dataclass(frozen=True)
class Packed(Layout):
    """Sequences end to end in `[tokens]`; sequence i is `cu_seqlens[i]:cu_seqlens[i + 1]`."""

    cu_seqlens: Int[Tensor, " bounds"]
    tokens: int
    ranks: Ranks = ALONE

    def sums(self, value: Tensor) -> Float[Tensor, " units"]:
        return self.ranks.sum_of_parts(self._reduce(value.double(), "sum", 0.0))

    def peak(self, value: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        return self.ranks.peak_of_parts(self._reduce(value, "max", -torch.inf))

    def _reduce(self, value: Tensor, how: str, empty: float) -> Tensor:
        if self.tokens == 0 or len(self.cu_seqlens) == 1:
            # plus a sum of nothing: still a function of `value`, so that backward runs here what it runs on other ranks
            return value.sum() + value.new_full((len(self.cu_seqlens) - 1,), empty)
        return torch.segment_reduce(value, how, offsets=self.cu_seqlens, unsafe=True, initial=empty)

    def spread(self, unit: Tensor) -> Tensor:
        return unit.index_select(0, self.index)

    @cached
    def index(self) -> Int[Tensor, " tokens"]:
        """The sequence of each token; a third of the memory traffic of repeat_interleave."""
        ends = self.cu_seqlens[1:]
        steps = torch.zeros(self.tokens + 1, dtype=torch.int32, device=ends.device)
        steps.index_add_(0, ends, torch.ones_like(ends, dtype=torch.int32))
        return steps[:-1].cumsum(0, dtype=torch.int32)


@dataclass(frozen=True)
class Turns(Layout):
    """Segments named by an index per token (of the tokens' shape); `units` is a static upper bound on their number."""

    index: Int[Tensor, "*tokens"]
    units: int
    ranks: Ranks = ALONE

    def sums(self, value: Tensor) -> Float[Tensor, " units"]:
        start = value.new_zeros(self.units, dtype=torch.float64)
        return self.ranks.sum_of_parts(start.index_add_(0, self.index.flatten(), value.double().flatten()))

    def peak(self, value: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        start = value.new_full((self.units,), -torch.inf)
        return self.ranks.peak_of_parts(start.scatter_reduce_(0, self.index.flatten(), value.flatten(), "amax"))

    def spread(self, unit: Tensor) -> Tensor:
        return unit[self.index]


def run_index(layout: Layout, trained: Float[Tensor, "*tokens"]) -> Int[Tensor, "*tokens"]:
    """For each token the number of its contiguous run of the mask; a token outside every run shares that of the run before it."""
    before = torch.zeros_like(trained)
    before[..., 1:] = trained[..., :-1]
    if isinstance(layout, Packed):
        first = trained.new_zeros(layout.tokens + 1).index_fill_(0, layout.cu_seqlens[:-1].long(), 1.0)
        before = before * (1.0 - first[:-1])
    opens = (trained * (1.0 - before)).to(torch.int64)
    return opens.flatten().cumsum(0).sub_(1).clamp_(min=0).reshape(trained.shape)


def turn_units(layout: Layout, index: Int[Tensor, "*tokens"]) -> Turns:
    """Each run as a unit of its own. How many there are is not known without reading the data, so their number is bounded:
    half the tokens and one more per sequence.
    """
    rows = len(layout.cu_seqlens) if isinstance(layout, Packed) else len(index) + 1
    return Turns(index=index, units=index.numel() // 2 + rows, ranks=layout.ranks)


# One sequence, log r = 0.1, −0.3, 0.2:
#     prefix          0.1   −0.2    0.0      the product up to and with the token
#     least_prefix    0.1   −0.2   −0.1      its own, and the least before it: 0.2 + min(0.1, −0.3)
def prefix_sums(layout: Layout, value: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """The sum over each sequence up to and with each token, in float64."""
    running = value.double().cumsum(-1)
    if not isinstance(layout, Packed):
        return running
    before = torch.cat([running.new_zeros(1), running])[layout.cu_seqlens[:-1].long()]
    return running - layout.spread(before)


def least_before(
    layout: Layout, value: Float[Tensor, "*tokens"], counted: Float[Tensor, "*tokens"]
) -> Float[Tensor, "*tokens"]:
    """The least value of a counted token before each one in its sequence; 0 where there is none."""
    values = torch.where(counted > 0, value, torch.inf)
    least = torch.full_like(values, torch.inf)
    least[..., 1:] = values[..., :-1]
    first = _first(layout, values)
    least = torch.where(first, torch.inf, least)
    if isinstance(layout, Packed):
        least = _running_least(least, layout)
    elif least.shape[-1]:
        least = least.cummin(-1).values
    return torch.where(least < torch.inf, least, 0.0)


def _first(layout: Layout, value: Tensor) -> Bool[Tensor, "*tokens"]:
    """Where sequences begin."""
    starts_here = torch.zeros(value.shape, dtype=torch.bool, device=value.device)
    if not isinstance(layout, Packed):
        starts_here[..., :1] = True
        return starts_here
    starts = torch.zeros(layout.tokens + 1, dtype=torch.bool, device=value.device)
    return starts.index_fill_(0, layout.cu_seqlens[:-1].long(), True)[:-1]


def _running_least(value: Float[Tensor, " tokens"], layout: Packed) -> Float[Tensor, " tokens"]:
    """The minimum up to each token of its sequence: after k rounds over 2^k tokens. Nothing is read on the host."""
    reach = 1
    while reach < layout.tokens:
        same = layout.index[reach:] == layout.index[:-reach]
        earlier = torch.where(same, value[:-reach], torch.inf)
        value = torch.cat([value[:reach], torch.minimum(value[reach:], earlier)])
        reach *= 2
    return value


BLOCK = 64


def reverse_scan(decay: Float[Tensor, " n"], add: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """x[t] = add[t] + decay[t] · x[t + 1], with x = 0 past the end.

    In blocks side by side: each is scanned from 0, what enters it from the right is a recurrence over blocks, one level
    up. n tokens take about BLOCK · log(n) / log(BLOCK) steps, and nothing is divided, so nothing overflows.
    """
    n = len(add)
    blocks = -(-n // BLOCK)
    x, reach = _columns(add, blocks), _columns(decay, blocks)
    for step in range(BLOCK - 2, -1, -1):
        x[step].addcmul_(reach[step], x[step + 1])
        reach[step].mul_(reach[step + 1])  # now the product to the block's end
    if blocks > 1:
        heads = reverse_scan(reach[0].clone(), x[0].clone())
        entering = torch.cat([heads[1:], heads.new_zeros(1)])
        x.addcmul_(reach, entering)
    return x.t().reshape(-1)[:n]


def _columns(flat: Tensor, blocks: int) -> Tensor:
    """A copy as [BLOCK, blocks], block b in column b, padded with 0 at the end."""
    padded = flat.new_zeros(BLOCK, blocks)
    full = len(flat) // BLOCK
    padded[:, :full] = flat[: full * BLOCK].view(full, BLOCK).t()
    if full < blocks:
        padded[: len(flat) - full * BLOCK, -1] = flat[full * BLOCK :]
    return padded


def ends(layout: Layout, trained: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """1 at the last slot of each sequence, trained or not."""
    if isinstance(layout, Packed):
        bounds = trained.new_zeros(layout.tokens + 1).index_fill_(0, layout.cu_seqlens.long(), 1.0)
        return bounds[1:]
    last = torch.zeros_like(trained)
    last[..., -1:] = 1.0
    return last


def last_trained(layout: Layout, trained: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """1 at the last trained token of each sequence."""
    place, last = _places(layout, trained)
    return (place == last).to(trained.dtype)


def after_last(layout: Layout, trained: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """1 at the slots after the last trained token of each sequence."""
    place, last = _places(layout, trained)
    return (place > last).to(trained.dtype)


def _places(layout: Layout, trained: Tensor) -> tuple[Tensor, Tensor]:
    """Each slot's place from 1, and that of its sequence's last trained token (0: none); exact beyond float32's 2^24."""
    place = torch.arange(1, trained.numel() + 1, dtype=torch.float64, device=trained.device).view(trained.shape)
    return place, layout.spread(layout.peak(place * trained).clamp(min=0.0))
