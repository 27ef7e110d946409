"""open-instruct's `val/rho_…`, as plain means over the valid tokens of what it returns per token."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.logged.views import CorrectionView, Table, beyond, fill


def _drops(x: CorrectionView, side: int | None = None) -> Tensor:
    """Tokens a gate zeroes; on one side, those beyond that bound."""
    found = torch.zeros_like(x.valid)
    for each in x.gates("zero"):
        beyond_it = each.fails if side is None else each.fails * x.per_token(each.sides[side], each.verdict.units)
        found = torch.maximum(found, beyond_it)
    return found


def _clamps(x: CorrectionView) -> Tensor:
    assert x.weighed is not None
    high, low = beyond(x.raw, x.weighed.weight.lower, x.weighed.weight.upper)
    return high + low


RHO: Table[CorrectionView] = {
    "drop_frac": lambda x: x.mean(_drops(x)),
    "drop_high_frac": lambda x: x.mean(_drops(x, 0)),
    "drop_low_frac": lambda x: x.mean(_drops(x, 1)),
    "weight": lambda x: x.mean(x.weight),
    "clipfrac": lambda x: x.mean(_clamps(x)),
}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """Nothing where the correction is off."""
    return {} if x.weighed is None else fill(RHO, x, "val/rho_")
