"""Where the tokens of rows with shared prompts stand: packed for everything that looks at one token, padded for attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.train.devices import to_device
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
    hidden: Float[Tensor, "rows width columns"]
    """Added to the scores: −inf for what a row's token does not see of them."""
    later: Float[Tensor, "1 common common"]
    """The same for the shared tokens among themselves."""
    own_columns: Int[Tensor, " own"]
    """Where a row's own tokens stand among what all rows may see."""

    reach: int
    """One past the last position."""

    @classmethod
    def of(cls, rows: Rows, dtype: torch.dtype) -> PackingPlan:
        """The plan of a batch, its shared prompts found by group. Sizes come from the host, so that nothing waits for the device."""
        device, extents = rows.ids.device, rows.extents
        first, group = _distinct(extents.prefix)
        shared = extents.prompts[first] - 1
        prefix = Padding.of(shared, int(shared.max()), device)
        own = Padding.of(extents.lengths, rows.tokens.shape[1], device)
        later = own.packed.view(len(group), -1) + prefix.number
        first, group, common = (to_device(each, device) for each in (first, group, shared))
        steps, begun = (torch.arange(each.width, device=device) for each in (own, prefix))
        places = (rows.prompts.unsqueeze(1) - 1 + steps).clamp(max=rows.ids.shape[1] - 1)
        shown = (begun < common[group].unsqueeze(1)).unsqueeze(1).expand(-1, own.width, -1)
        seen = torch.cat([shown, (steps <= steps.unsqueeze(1)).expand(len(group), -1, -1)], -1)
        columns = own.inside + prefix.width * (own.inside // own.width + 1)
        return cls(
            tokens=torch.cat([prefix.pick(rows.ids[first, : prefix.width]), own.pick(rows.ids.gather(1, places))]),
            positions=torch.cat([prefix.pick(begun.expand_as(prefix.real)), own.pick(places)]),
            prefix=prefix,
            own=own,
            group=group,
            visible=torch.cat([prefix.packed.view(len(first), -1)[group], later], 1).flatten(),
            hidden=torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, -torch.inf),
            later=torch.full((1, prefix.width, prefix.width), -torch.inf, dtype=dtype, device=device).triu_(1),
            own_columns=columns,
            reach=int(extents.sizes.max()),
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
    def of(cls, lengths: Int[Tensor, " rows"], width: int, device: torch.device) -> Padding:
        """Rows of these lengths, which the host knows, padded on the right."""
        real = torch.arange(width) < lengths.unsqueeze(1)
        flat = real.flatten()
        parts = (real, flat.nonzero().squeeze(1), (flat.cumsum(0) - 1).clamp(min=0))
        return cls(*(to_device(each, device) for each in parts))

    @property
    def width(self) -> int:
        """Places of a row."""
        return self.real.shape[1]

    @property
    def number(self) -> int:
        """Packed tokens."""
        return len(self.inside)

    def pick(self, padded: Int[Tensor, "rows width"]) -> Int[Tensor, " tokens"]:
        """One number per token, without the padding."""
        return padded.flatten().index_select(0, self.inside)

    def padded(self, packed: Float[Tensor, " tokens"]) -> Float[Tensor, "rows width"]:
        """One number per token laid out in rows, 0 in the padding."""
        return packed.new_zeros(self.real.numel()).index_copy(0, self.inside, packed).view(self.real.shape)


def _distinct(prefix: Int[Tensor, " rows"]) -> tuple[Int[Tensor, " prefixes"], Int[Tensor, " rows"]]:
    """The first row of each distinct prompt, and which of them each row has."""
    names, group = torch.unique(prefix, return_inverse=True)
    order = torch.arange(len(prefix))
    return torch.full_like(names, len(prefix)).scatter_reduce_(0, group, order, "amin"), group
