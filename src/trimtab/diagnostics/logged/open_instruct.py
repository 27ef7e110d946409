"""open-instruct's `val/rho_…`, as plain means over the valid tokens of what it returns per token."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.diagnostics.logged.seen import Seen, Table, beyond, filled


def _dropped(x: Seen, side: int | None = None) -> Tensor:
    """Tokens a gate zeroes; on one side, those beyond that bound."""
    found = torch.zeros_like(x.valid)
    for each in x.gates("zero"):
        beyond_it = each.fails if side is None else each.fails * x.laid(each.sides[side], each.verdict.units)
        found = torch.maximum(found, beyond_it)
    return found


def _clamped(x: Seen) -> Tensor:
    assert x.weighed is not None
    high, low = beyond(x.raw, x.weighed.weight.lower, x.weighed.weight.upper)
    return high + low


RHO: Table[Seen] = {
    "drop_frac": lambda x: x.mean(_dropped(x)),
    "drop_high_frac": lambda x: x.mean(_dropped(x, 0)),
    "drop_low_frac": lambda x: x.mean(_dropped(x, 1)),
    "weight": lambda x: x.mean(x.weight),
    "clipfrac": lambda x: x.mean(_clamped(x)),
}


def correction(x: Seen) -> dict[str, Tensor]:
    """Nothing where the correction is off."""
    return {} if x.weighed is None else filled(RHO, x, "val/rho_")
