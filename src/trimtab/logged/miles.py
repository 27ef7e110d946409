"""miles' scalars where its loss is a mean per answer: a mean for each answer, then over the answers."""

from __future__ import annotations

from torch import Tensor

from trimtab.config.losses import Clip, Gspo
from trimtab.core.divergence import k3
from trimtab.logged.clipping import clips
from trimtab.logged.views import CorrectionView, LossView, Table, beyond, fill


def _rows(x: CorrectionView, value: Tensor) -> Tensor:
    """The sum of what is kept over the trained tokens of each answer, averaged over the answers."""
    return (x.layout.total(value * x.kept) / x.lengths.clamp(min=1.0)).mean()


def _outside(x: CorrectionView) -> Tensor:
    assert x.weighed is not None
    high, low = beyond(x.raw, x.weighed.weight.lower, x.weighed.weight.upper)
    return high + low


DRIFT: Table[CorrectionView] = {
    "train_rollout_logprob_abs_diff": lambda x: _rows(x, x.log_r.abs()),
    "train_rollout_kl": lambda x: _rows(x, k3(x.log_r).clamp(max=10.0)),
}
TIS: Table[CorrectionView] = {
    "tis": lambda x: x.by_row(x.raw).mean(),
    "tis_clipfrac": lambda x: x.by_row(_outside(x)).mean(),
    "tis_abs": lambda x: x.by_row((x.raw - 1.0).abs()).mean(),
}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """The gap, and the plain weight before any rejection; the recipe has names of its own."""
    found = fill(DRIFT, x) if x.rule.policies == "decoupled" else {}
    plain = x.weighed is not None and x.weighed.weight.limit is None
    return found | fill(TIS, x) if plain else found


def _ess(x: LossView) -> Tensor:
    """(Σρ)² / (n Σρ²) of each answer, averaged; 0 for one without tokens."""
    ratio, total = x.rho * x.valid, x.terms.layout.total
    lengths = x.terms.batch.lengths.clamp(min=1.0)
    return (total(ratio).square() / (lengths * total(ratio.square()).clamp(min=1e-8))).mean()


CLIP: Table[LossView] = {
    "pg_clipfrac": lambda x: x.by_row(clips(x), x.valid).mean(),
    "ppo_kl": lambda x: -x.by_row(x.rho.log(), x.valid).mean(),
    "ess_ratio": _ess,
}


def loss(x: LossView) -> dict[str, Tensor]:
    """The clip and the effective share of each answer, without rejection."""
    return fill(CLIP, x) if isinstance(x.loss, Clip | Gspo) else {}
