"""verl's `rollout_corr/…` and `actor/…`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trimtab.config.losses import ClipCov, DppoKl, DppoTv, Dro, Gmpo, KlCov, Reinforce
from trimtab.core.bounds import gate_bounds
from trimtab.core.ratio import above
from trimtab.dialects.frameworks.verl_correction import REJECTIONS
from trimtab.logged.drift import DRIFT, LIMIT, ess
from trimtab.logged.views import (
    CorrectionView,
    GateView,
    LossView,
    Table,
    beyond,
    deviation,
    fill,
    greatest,
    least,
    mean,
)

PREFIX = "rollout_corr/"

APART: Table[CorrectionView] = {
    **DRIFT,
    "k3_kl": lambda x: x.mean(x.log_r.expm1() - x.log_r),
    "chi2_seq": lambda x: (2 * x.total_log_r.clamp(-LIMIT, LIMIT)).expm1().mean(),
}


def _band(x: CorrectionView) -> tuple[float, float]:
    """The bounds that count as extreme: a cap h stands for [1/h, h]."""
    assert x.weighed is not None
    upper = x.weighed.weight.upper or math.inf
    return x.weighed.weight.lower or 1 / upper, upper


def _raw_sides(x: CorrectionView) -> tuple[Tensor, Tensor]:
    """Tokens whose raw ratio is extreme, or all rows whose product is, as means."""
    lower, upper = _band(x)
    if x.rule.weight is not None and x.rule.weight.level == "sequence":
        high, low = beyond(x.total_log_r, math.log(lower) if lower else None, math.log(upper))
        return high.mean(), low.mean()
    high, low = beyond(x.raw, lower, upper)
    return x.mean(high), x.mean(low)


def _ends(x: CorrectionView) -> tuple[Tensor, Tensor]:
    """The greatest and the least weight; of a product, before its bounds."""
    if x.rule.weight is not None and x.rule.weight.level == "sequence":
        total = x.total_log_r
        return total.amax().clamp(max=LIMIT).exp(), total.amin().exp()
    return greatest(x.weight, x.valid), least(x.weight, x.valid)


WEIGHT: Table[CorrectionView] = {
    "mean": lambda x: x.mean(x.weight),
    "max": lambda x: _ends(x)[0],
    "min": lambda x: _ends(x)[1],
    "ratio_fraction_high": lambda x: _raw_sides(x)[0],
    "ratio_fraction_low": lambda x: _raw_sides(x)[1],
    "std": lambda x: deviation(x.weight.clamp(max=_band(x)[1]), x.valid, biased=True),
    "eff_sample_size": lambda x: ess(x.weight, x.valid),
    "seq_mean": lambda x: x.by_row(x.weight).mean(),
    "seq_std": lambda x: deviation(x.by_row(x.weight), x.every),
    "seq_max": lambda x: x.by_row(x.weight).amax(),
    "seq_min": lambda x: x.by_row(x.weight).amin(),
    "seq_max_deviation": lambda x: (x.by_row(x.weight) - 1.0).abs().amax(),
    "seq_fraction_high": lambda x: beyond(x.by_row(x.raw), *_band(x))[0].mean(),
    "seq_fraction_low": lambda x: beyond(x.by_row(x.raw), *_band(x))[1].mean(),
}
"""Of the weight before normalisation and rejection; `seq_…` over all rows."""


def _norm_factor(x: CorrectionView) -> Tensor:
    by_token = x.rule.weight is not None and x.rule.weight.level == "token"
    found = x.mean(x.weight) if by_token else mean(x.by_row(x.weight), x.present)
    return torch.where(found > 1e-8, found, 1.0)


def _two_sided(x: GateView) -> bool:
    return x.gate.metric == "k1"


def _clamps(x: GateView) -> Tensor:
    lower, upper = gate_bounds(x.gate)
    return x.tokens.clamp(min=lower if _two_sided(x) else 0.0, max=upper)


REJECTION: Table[GateView] = {
    "mean": lambda x: x.seen.mean(x.tokens),
    "max": lambda x: greatest(*x.units),
    "min": lambda x: least(*x.units),
    "fraction_high": lambda x: mean(x.sides[0], x.units[1]),
    "fraction_low": lambda x: mean(x.sides[1], x.units[1]),
    "std": lambda x: deviation(_clamps(x), x.seen.valid, biased=True),
    "seq_mean": lambda x: mean(x.rows, x.seen.present),
    "seq_std": lambda x: deviation(x.rows, x.seen.present),
    "seq_max": lambda x: greatest(x.rows, x.seen.present),
    "seq_min": lambda x: least(x.rows, x.seen.present),
    "seq_max_deviation": lambda x: greatest(x.rows.abs(), x.seen.present),
    "seq_fraction_high": lambda x: mean(beyond(x.rows, *x.bounds)[0], x.seen.present),
    "masked_fraction": lambda x: x.seen.mean(x.fails),
    "seq_masked_fraction": lambda x: mean(x.seen.layout.peak(x.fails), x.seen.present),
}
"""Of one option of `rollout_rs`; `seq_…` over rows with tokens."""


def _option(x: GateView) -> str | None:
    shape = {"metric": x.gate.metric, "level": x.gate.level} | ({"agg": x.gate.agg} if x.gate.agg else {})
    rows = {name: {key: row[key] for key in row if key != "direction"} for name, row in REJECTIONS.items()}
    return next((name for name, row in rows.items() if row == shape), None)


def _options(x: CorrectionView) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for judged in x.gates("reject"):
        prefix = f"{PREFIX}rollout_rs_{_option(judged)}_"
        found |= fill(REJECTION, judged, prefix)
        if _two_sided(judged):
            found[f"{prefix}seq_fraction_low"] = mean(beyond(judged.rows, *judged.bounds)[1], x.present)
    lost = x.valid - x.kept
    found[f"{PREFIX}rollout_rs_masked_fraction"] = x.mean(lost)
    found[f"{PREFIX}rollout_rs_seq_masked_fraction"] = x.layout.peak(lost).mean()  # over all rows
    return found


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """`rollout_corr/…`."""
    found = fill(APART, x, PREFIX)
    if x.weighed is not None:
        found |= fill(WEIGHT, x, f"{PREFIX}rollout_is_")
        if x.weighed.weight.outside == "zero":
            outside = torch.maximum(*beyond(x.raw, *_band(x)))
            found[f"{PREFIX}rollout_is_oob_ratio"] = x.mean(outside)
        if x.rule.normalize:
            found[f"{PREFIX}rollout_is_batch_norm_factor"] = _norm_factor(x)
    if x.rule.gates and all(_option(each) for each in x.gates("reject")):
        found |= _options(x)
    return found


def _beyond_range(x: LossView) -> Tensor:
    """GMPO: where log ρ leaves its range on either side, whatever the advantage."""
    assert isinstance(x.loss, Gmpo)
    return torch.maximum(*beyond(x.log_rho, -x.loss.low, x.loss.high))


def _caps(x: LossView) -> Tensor:
    """DPPO: ρ above its cap where the token is not left out."""
    assert isinstance(x.loss, DppoTv | DppoKl)
    cap = torch.inf if x.loss.ratio_cap is None else x.loss.ratio_cap
    return above(x.rho, cap) * (1.0 - x.mark("clip_high", "clip_low"))


CLIPPED: dict[type, Table[LossView]] = {
    Gmpo: {
        "pg_clipfrac": lambda x: mean(_beyond_range(x) * above(x.terms.advantages, 0.0), x.kept),
        "pg_clipfrac_lower": lambda x: mean(_beyond_range(x) * above(-x.terms.advantages, 0.0), x.kept),
    },
    DppoTv: {"pg_clipfrac_lower": lambda x: mean(_caps(x), x.kept)},
    DppoKl: {"pg_clipfrac_lower": lambda x: mean(_caps(x), x.kept)},
    ClipCov: {"pg_clipfrac": lambda x: mean(x.mark("cov"), x.kept)},
    KlCov: {"ppo_kl": lambda x: mean(x.log_rho.abs(), x.kept)},
}
"""Where a loss logs something else under the common names."""

SILENT: dict[type, tuple[str, ...]] = {
    ClipCov: ("pg_clipfrac_lower",),
    KlCov: ("pg_clipfrac", "pg_clipfrac_lower"),
    Reinforce: ("pg_clipfrac", "pg_clipfrac_lower"),
    Dro: ("pg_clipfrac", "pg_clipfrac_lower"),
}
"""What a loss does not log."""

LOSS: Table[LossView] = {
    "pg_clipfrac": lambda x: mean(x.mark("clip_high", "clip_low"), x.kept),
    "pg_clipfrac_lower": lambda x: mean(x.mark("clip_dual"), x.kept),
    "ppo_kl": lambda x: -mean(x.log_rho, x.kept),
}


def loss(x: LossView) -> dict[str, Tensor]:
    """`actor/…`."""
    if isinstance(x.loss, Reinforce) and x.terms.anchor == "proximal":
        return {}  # gpg logs nothing
    table = {**LOSS, **CLIPPED.get(type(x.loss), {})}
    silent = SILENT.get(type(x.loss), ())
    return fill({name: value for name, value in table.items() if name not in silent}, x, "actor/")
