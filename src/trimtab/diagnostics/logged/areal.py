"""AReaL's scalars: means over the valid tokens before rejection."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.diagnostics.logged.seen import Descended, Seen, Table, beyond, filled, mean


def _filtered(x: Seen) -> Tensor:
    """Tokens rejected; under `clamp`, tokens whose weight the bounds changed."""
    lost = x.valid - x.kept
    if x.weighed is not None:
        weight = x.weighed.weight
        for high_or_low in beyond(x.raw, weight.lower, weight.upper):
            lost = torch.maximum(lost, high_or_low * x.kept)
        for each in x.gates("clamp"):
            outside = torch.maximum(*beyond(x.raw, each.gate.lower, each.gate.upper))
            lost = torch.maximum(lost, outside * each.fails)
    return lost


def correction(x: Seen) -> dict[str, Tensor]:
    """Nothing where no rejection is configured."""
    return {} if x.weighed is None and not x.rule.gates else {"rs_filtered_fraction": x.mean(_filtered(x))}


LOSS: Table[Descended] = {
    "clip_ratio": lambda x: mean(x.mark("clip_high", "clip_low") * x.kept, x.valid),
    "dual_clip_ratio": lambda x: mean(x.mark("clip_dual") * x.kept, x.valid),
    "approx_kl": lambda x: mean(x.log_rho, x.valid),
}


def loss(x: Descended) -> dict[str, Tensor]:
    """The actor's."""
    return filled(LOSS, x)
