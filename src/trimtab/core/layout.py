"""Where sequences lie in a tensor of tokens: padded rows, packed runs, or turns inside either.

A layout knows three things and nothing else: the sum (`sums`, `total`) and the `peak` over each unit, and how to `spread` one
value per unit back over its tokens. Everything above it is written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from trimtab.core.add import row_sums
from trimtab.core.once import once
from trimtab.core.ranks import ALONE, Ranks


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

    @once
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
