"""Where the tokens of rows with shared prompts stand: packed for everything that looks at one token, padded for attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.train.learner.rows import Rows


@dataclass(frozen=True, eq=False)
class PackingPlan:
    """Where the tokens of a call stand: packed, the shared ones first; and padded, for attention."""

    tokens: Int[Tensor, " tokens"]
    positions: Int[Tensor, " tokens"]
    prefix: Padding
    own: Padding
    group: Int[Tensor, " rows"]
    """Which prefix each row goes on from."""
    visible: Int[Tensor, " places"]
    """The packed places of what a row's tokens may see: its prefix, then its own, each padded."""
    hidden: Float[Tensor, "rows 1 width columns"]
    """Added to the scores: −inf for what a row's token does not see of them."""

    @classmethod
    def of(cls, rows: Rows, dtype: torch.dtype) -> PackingPlan:
        """The plan of a batch, its shared prompts found by group."""
        first, group = _distinct(rows)
        common = rows.prompts[first] - 1
        prefix, own = Padding.of(common, int(common.max())), Padding.of(rows.lengths, rows.tokens.shape[1])
        steps, begun = (torch.arange(each.width, device=group.device) for each in (own, prefix))
        places = (rows.prompts.unsqueeze(1) - 1 + steps).clamp(max=rows.ids.shape[1] - 1)
        shown = (begun < common[group].unsqueeze(1)).unsqueeze(1).expand(-1, own.width, -1)
        seen = torch.cat([shown, (steps <= steps.unsqueeze(1)).expand(len(group), -1, -1)], -1).unsqueeze(1)
        later = own.packed.view(len(group), -1) + prefix.number
        return cls(
            tokens=torch.cat([rows.ids[first, : prefix.width][prefix.real], rows.ids.gather(1, places)[own.real]]),
            positions=torch.cat([begun.expand_as(prefix.real)[prefix.real], places[own.real]]),
            prefix=prefix,
            own=own,
            group=group,
            visible=torch.cat([prefix.packed.view(len(first), -1)[group], later], 1).flatten(),
            hidden=torch.zeros(seen.shape, dtype=dtype, device=group.device).masked_fill_(~seen, -torch.inf),
        )


@dataclass(frozen=True, eq=False)
class Padding:
    """The way between packed tokens and padded rows."""

    real: Bool[Tensor, "rows width"]
    inside: Int[Tensor, " tokens"]
    """The padded place of each packed token."""
    packed: Int[Tensor, " places"]
    """The packed place of each padded one; padding holds another token's copy, which nobody looks at."""

    @classmethod
    def of(cls, lengths: Int[Tensor, " rows"], width: int) -> Padding:
        """Rows of these lengths, padded on the right."""
        real = torch.arange(width, device=lengths.device) < lengths.unsqueeze(1)
        flat = real.flatten()
        return cls(real, flat.nonzero().squeeze(1), (flat.cumsum(0) - 1).clamp(min=0))

    @property
    def width(self) -> int:
        """Places of a row."""
        return self.real.shape[1]

    @property
    def number(self) -> int:
        """Packed tokens."""
        return len(self.inside)

    def padded(self, packed: Float[Tensor, " tokens"]) -> Float[Tensor, "rows width"]:
        """One number per token laid out in rows, 0 in the padding."""
        return packed.new_zeros(self.real.numel()).index_copy(0, self.inside, packed).view(self.real.shape)


def _distinct(rows: Rows) -> tuple[Int[Tensor, " groups"], Int[Tensor, " rows"]]:
    """The first row of each distinct prompt, and which of them each row has."""
    order = torch.arange(len(rows), device=rows.group.device)
    names, group = torch.unique(rows.group, return_inverse=True)
    first = torch.full_like(names, len(rows)).scatter_reduce_(0, group, order, "amin")
    inside = torch.arange(rows.ids.shape[1], device=group.device) < rows.prompts.unsqueeze(1)
    like = first[group]
    same = (rows.prompts == rows.prompts[like]) & ((rows.ids == rows.ids[like]) | ~inside).all(1)
    return (first, group) if bool(same.all()) else (order, order)
