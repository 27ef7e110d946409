"""TRL's scalars."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from trimtab.config.losses import Cispo, Clip, Vespo
from trimtab.logged.clipping import Clipping, cispo_clips, clips, clips_high, clips_low
from trimtab.logged.views import CorrectionView, LossView, Table, fill, greatest, least, mean
from trimtab.losses.vespo import phi


def _weights(x: CorrectionView) -> tuple[Tensor, Tensor]:
    """The weights, over tokens or over all rows; they are logged before the sequence mask is known."""
    assert x.weighed is not None
    return x.unit_weight, x.valid if x.weighed.units is None else x.every


SAMPLING: Table[CorrectionView] = {
    "sampling_logp_difference/mean": lambda x: x.mean(x.log_r.abs()),
    "sampling_logp_difference/max": lambda x: greatest(x.log_r.abs(), x.valid),
    "importance_sampling_ratio/min": lambda x: least(*_weights(x)),
    "importance_sampling_ratio/mean": lambda x: mean(*_weights(x)),
    "importance_sampling_ratio/max": lambda x: greatest(*_weights(x)),
}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """`sampling/…`, where a weight is switched on."""
    return {} if x.weighed is None else fill(SAMPLING, x, "sampling/")


def _mean(x: LossView, value: Tensor) -> Tensor:
    """Over tokens; where a sequence has one ratio, over all rows."""
    return mean(value, x.valid) if isinstance(x.loss, Clip | Cispo) else x.by_row(value, x.valid).mean()


CLIP: Table[LossView] = {
    "clip_ratio/low_mean": lambda x: _mean(x, clips_low(x)),
    "clip_ratio/high_mean": lambda x: _mean(x, clips_high(x)),
    "clip_ratio/region_mean": lambda x: _mean(x, clips(x)),
    "clip_ratio/low_min": lambda x: least(x.by_row(clips_low(x), x.valid), x.terms.batch.lengths),
    "clip_ratio/high_max": lambda x: greatest(x.by_row(clips_high(x), x.valid), x.terms.batch.lengths),
}


def _phi(x: LossView, loss: Vespo) -> Tensor:
    """Over all rows, whether the sequence mask drops them or not; where there are no tokens φ is 1."""
    seen = x.seen
    weight = x.valid
    if seen is not None and seen.weighed is not None:
        weight = seen.per_token(seen.unit_weight, seen.weighed.units)
    rows = x.by_row(phi(loss, replace(x.terms, weight=weight)), x.valid)
    return torch.where(x.terms.batch.lengths > 0, rows, 1.0).mean()


def loss(x: LossView) -> dict[str, Tensor]:
    """Clipping by the sign of the advantage; the sequence mask does not change what is counted."""
    found = {"kl": x.metrics["policy/kl"]} if "policy/kl" in x.metrics else {}
    if isinstance(x.loss, Clipping):
        return found | fill(CLIP, x)
    if isinstance(x.loss, Cispo):
        return found | {"cispo_clip_ratio": _mean(x, cispo_clips(x))}
    if isinstance(x.loss, Vespo):
        return found | {"vespo/phi_seq_mean": _phi(x, x.loss)}
    return found
