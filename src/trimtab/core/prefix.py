"""Running sums and minima along each sequence, of the tokens up to each token."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.core.layout import Layout, Packed


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
    held = torch.where(counted > 0, value, torch.inf)
    found = torch.full_like(held, torch.inf)
    found[..., 1:] = held[..., :-1]
    first = _first(layout, held)
    found = torch.where(first, torch.inf, found)
    if isinstance(layout, Packed):
        found = _running_least(found, layout)
    elif found.shape[-1]:
        found = found.cummin(-1).values
    return torch.where(found < torch.inf, found, 0.0)


def _first(layout: Layout, value: Tensor) -> Bool[Tensor, "*tokens"]:
    """Where sequences begin."""
    found = torch.zeros(value.shape, dtype=torch.bool, device=value.device)
    if not isinstance(layout, Packed):
        found[..., :1] = True
        return found
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
