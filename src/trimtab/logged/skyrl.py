"""SkyRL's scalars; ratios of sequences are over all rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trimtab.config.losses import Cispo, ImportancePg
from trimtab.core.ratio import above
from trimtab.logged.views import (
    CorrectionView,
    GateView,
    LossView,
    Table,
    deviation,
    fill,
    greatest,
    least,
    mean,
)

LIMIT = 20.0


def _with_zeros(x: CorrectionView) -> Tensor:
    """The ratio, 0 on masked tokens: SkyRL lets them into the spread and the ends."""
    return _drift(x).clamp(-LIMIT, LIMIT).exp() * x.valid


def _drift(x: CorrectionView) -> Tensor:
    """log proximal − log behavior, also under a loss that divides by behavior, whose masks then name that pair."""
    pairs = [gate.pair for gate in x.rule.gates if gate.pair is not None]
    return x.trace.batch.log_r[pairs[0]] if pairs else x.log_r


RATIO: Table[CorrectionView] = {
    "is_ratio_mean": lambda x: x.mean(_with_zeros(x)),
    "is_ratio_std": lambda x: deviation(_with_zeros(x), torch.ones_like(x.valid)),
    "is_ratio_max": lambda x: _with_zeros(x).amax(),
    "is_ratio_min": lambda x: _with_zeros(x).amin(),
}

SEQUENCES: Table[GateView] = {
    "masked_ratio": lambda x: (1.0 - x.verdict.inside).mean(),
    "over_high_ratio": lambda x: x.sides[0].mean(),
    "under_low_ratio": lambda x: x.sides[1].mean(),
}

NAMES = {"mean": "geo_sequence_mask", "sum": "product_sequence_mask"}
"""By agg; the others are the veto of outliers."""


def _gate(x: GateView) -> dict[str, Tensor]:
    if x.gate.level == "token":
        return {"token_mask_ratio": mean(x.fails, x.verdict.scope)}
    return fill(SEQUENCES, x, f"{NAMES.get(x.gate.agg or '', 'outlier_seq')}_")


def _cap_effects(x: CorrectionView) -> dict[str, Tensor]:
    """How much the cap takes, over what the veto and the token mask left: sequences are masked after the weight."""
    weighed, upper = x.weighed, None if x.rule.weight is None else x.rule.weight.upper
    if weighed is None or upper is None:
        return {}
    left = x.valid
    for each in x.gates():
        left = left if each.gate.agg in NAMES else left * each.verdict.passes
    if weighed.units is None:
        return {"tis_token_clip_high_ratio": mean(above(x.log_r_within(LIMIT).exp(), upper), left)}
    product = x.layout.total(x.log_r * left).clamp(-LIMIT, LIMIT).exp()
    return {"tis_seq_clip_high_ratio": above(product, upper).mean()}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """Nothing where no correction is switched on."""
    if x.weighed is None and not x.rule.gates:
        return {}
    found = fill(RATIO, x)
    for judged in x.gates():
        found |= _gate(judged)
    return found | _cap_effects(x)


def _cispo(x: LossView, bounds: Cispo) -> dict[str, Tensor]:
    """The ratio that cispo bounds, which SkyRL logs since 0.4.0."""
    ratio = x.rho.clamp(math.exp(-LIMIT), math.exp(LIMIT))
    held = ratio.clamp(bounds.lower or 0.0, bounds.upper)
    return {
        "cispo/ratio_mean": mean(ratio, x.valid),
        "cispo/ratio_clamped_mean": mean(held, x.valid),
        "cispo/ratio_max": greatest(ratio, x.valid),
        "cispo/ratio_min": least(ratio, x.valid),
    }


def loss(x: LossView) -> dict[str, Tensor]:
    """Clipping counts the tokens before rejection, and so do ratios."""
    whole = x.before_rejection()
    if isinstance(x.loss, ImportancePg):
        return {"importance_ratio": mean(whole.rho, x.valid)}
    found = {"clip_ratio": mean(whole.mark("clip_high", "clip_low"), x.valid)}
    if isinstance(x.loss, Cispo) and x.loss.outside == "clamp":
        found |= _cispo(whole, x.loss)
    return found
